package driver

import (
	"fmt"
	"strconv"
	"strings"
)

// A Receipt names one delivery of one message. Every delivery has a fresh one,
// and only the latest works, until its deadline. Callers treat it as opaque:
// keep it, compare it, pass it back.
//
// It is a small value and not a string because a string would cost every
// delivery of a memory-speed backend an allocation. MarshalText and
// UnmarshalText carry it over a wire.
type Receipt struct {
	// Handle is the backend's text: a message id, or an SQS receipt handle.
	Handle string
	// Place lets the backend find the message without searching; its meaning
	// is the backend's own.
	Place uint64
	// Nonce tells this delivery from all others of the same message.
	Nonce uint64
}

// IsZero reports whether r names no delivery.
func (r Receipt) IsZero() bool { return r == Receipt{} }

// String returns the text form that UnmarshalText reads: handle, place and
// nonce, the last two in base 36, joined by dots.
func (r Receipt) String() string {
	return r.Handle + "." + strconv.FormatUint(r.Place, 36) + "." + strconv.FormatUint(r.Nonce, 36)
}

// parseReceipt reads what String wrote.
func parseReceipt(text string) (Receipt, error) {
	rest, nonceText, okNonce := cutLast(text, ".")
	handle, placeText, okPlace := cutLast(rest, ".")
	if !okNonce || !okPlace {
		return Receipt{}, fmt.Errorf("%w: receipt: want handle.place.nonce", ErrInvalid)
	}
	place, err := strconv.ParseUint(placeText, 36, 64)
	if err != nil {
		return Receipt{}, fmt.Errorf("%w: receipt: place is not a base 36 number", ErrInvalid)
	}
	nonce, err := strconv.ParseUint(nonceText, 36, 64)
	if err != nil {
		return Receipt{}, fmt.Errorf("%w: receipt: nonce is not a base 36 number", ErrInvalid)
	}
	return Receipt{Handle: handle, Place: place, Nonce: nonce}, nil
}

// MarshalText makes a Receipt a string in JSON.
func (r Receipt) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what String and MarshalText wrote. The error is ErrInvalid; it does
// not repeat the text, which may come from anybody.
func (r *Receipt) UnmarshalText(text []byte) error {
	parsed, err := parseReceipt(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
