package envelope

import (
	"encoding/hex"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
)

// A Hash is a BLAKE3 hash of 256 bits. Its text is "b3:" and 64 hex digits.
type Hash [32]byte

const (
	hashPrefix = "b3:"
	// hashTextLen is the length of a hash as text.
	hashTextLen = len(hashPrefix) + 2*len(Hash{})
)

// HashBody returns the hash of a body. It does not allocate.
func HashBody(payload []byte) Hash { return blake3.Sum256(payload) }

// IsZero reports whether h was never set. No known body has the
// hash zero.
func (h Hash) IsZero() bool { return h == Hash{} }

// String returns "b3:" and 64 hex digits.
func (h Hash) String() string { return string(h.append(make([]byte, 0, hashTextLen))) }

func (h *Hash) append(b []byte) []byte {
	return hex.AppendEncode(append(b, hashPrefix...), h[:])
}

// MarshalText makes a Hash a string in JSON. The error is always nil.
func (h Hash) MarshalText() ([]byte, error) { return h.append(nil), nil }

// UnmarshalText reads the text of String. The error is ErrEncoding and does not repeat the text.
func (h *Hash) UnmarshalText(text []byte) error {
	parsed, err := parseHash(string(text))
	if err != nil {
		return err
	}
	*h = parsed
	return nil
}

// parseHash reads "b3:" and 64 lower-case hex digits. The error is ErrEncoding
// and does not repeat the text.
func parseHash(text string) (Hash, error) {
	var h Hash
	if !parseHex(h[:], text, hashPrefix) {
		return Hash{}, decodeError("hash", `want "b3:" and 64 lower-case hex digits`)
	}
	return h, nil
}

// parseHex fills dst from prefix and lower-case hex digits. Upper case is
// refused, so that a value has one text.
func parseHex(dst []byte, text, prefix string) bool {
	if len(text) != len(prefix)+2*len(dst) || text[:len(prefix)] != prefix {
		return false
	}
	for i := range dst {
		high, okHigh := hexDigit(text[len(prefix)+2*i])
		low, okLow := hexDigit(text[len(prefix)+2*i+1])
		if !okHigh || !okLow {
			return false
		}
		dst[i] = high<<4 | low
	}
	return true
}

func hexDigit(c byte) (value byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

func decodeError(field, detail string) error {
	return &driver.Error{Code: driver.ErrEncoding, Op: "decode envelope", Field: field, Detail: detail}
}
