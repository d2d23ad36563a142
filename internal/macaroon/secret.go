package macaroon

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// Sealed hides bytes from printers. Package fmt prints unexported fields without
// calling their methods, so a field with the bytes would be shown; a function value
// is printed as an address only.
type Sealed struct{ open func() []byte }

// Seal hides b, which the caller must not change afterwards.
func Seal(b []byte) Sealed { return Sealed{open: func() []byte { return b }} }

// Bytes returns the sealed bytes, or nil. The caller must not change them.
func (s Sealed) Bytes() []byte {
	if s.open == nil {
		return nil
	}
	return s.open()
}

// redacted is printed instead of a secret that has no name.
const redacted = "[redacted]"

// A Secret is a text that no verb of package fmt, no logger and no encoder shows.
// Its zero value is empty.
type Secret struct{ text Sealed }

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return Secret{Seal([]byte(text))} }

// Reveal returns the text. Keep it out of logs.
func (s Secret) Reveal() string { return string(s.text.Bytes()) }

// Equal reports whether both are the same text, in constant time.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare(s.text.Bytes(), other.text.Bytes()) == 1
}

// String returns "[redacted]".
func (s Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (s Secret) GoString() string { return redacted }

// Format prints "[redacted]", for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]": only Reveal shows the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
