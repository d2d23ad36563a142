package capability

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
)

// sealed holds bytes where no printer finds them. Package fmt does not call the
// methods of a field that is not exported, and would print the bytes of one; but
// behind a function there is nothing to follow.
type sealed struct{ open func() []byte }

func seal(b []byte) sealed { return sealed{open: func() []byte { return b }} }

// bytes returns what was sealed, nil if nothing was. Nobody may change it.
func (s sealed) bytes() []byte {
	if s.open == nil {
		return nil
	}
	return s.open()
}

// redacted is what is printed instead of a secret without a name.
const redacted = "[redacted]"

// A Secret is a text that does not print itself: no verb of package fmt, no
// logger and no encoder shows it. Its zero value is empty.
type Secret struct{ text sealed }

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return Secret{seal([]byte(text))} }

// Reveal returns the text. Keep it out of logs.
func (s Secret) Reveal() string { return string(s.text.bytes()) }

// Equal compares in constant time.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare(s.text.bytes(), other.text.bytes()) == 1
}

// String returns "[redacted]".
func (s Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (s Secret) GoString() string { return redacted }

// Format prints "[redacted]", for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue is "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]": a secret leaves only by Reveal.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// tokenEncoding is base64 for URLs without padding, the usual text form of
// macaroons, and strict: a token has one text.
var tokenEncoding = base64.RawURLEncoding.Strict()
