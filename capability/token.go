package capability

import (
	"crypto/subtle"
	"fmt"
	"io"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/privatefile"
)

// A Token is a capability: its bearer may do what its caveats allow. It is a
// secret. No verb of package fmt, no logger and no encoder shows more of it than
// its id; only Reveal does.
//
// The zero Token means "no token". Tokens are immutable and may be copied.
type Token struct{ binary macaroon.Sealed }

// Parse reads the text form of a token, as Reveal returns it. It checks only the
// form; the daemon decides whether the token is valid.
// The error has code driver.ErrUnauthenticated and reason ReasonMalformed, and
// does not repeat the text.
func Parse(text string) (Token, error) {
	if len(text) > macaroon.Encoding.EncodedLen(macaroon.MaxBytes) {
		return Token{}, malformed()
	}
	// Decoding skips line breaks, which would give a token more than one text.
	// The comparison of lengths rejects them.
	binary, err := macaroon.Encoding.DecodeString(text)
	if err != nil || macaroon.Encoding.EncodedLen(len(binary)) != len(text) {
		return Token{}, malformed()
	}
	return adopt(binary)
}

// ParseBinary is Parse for the binary form of a macaroon, version 2. It keeps a
// copy of the bytes. An empty slice is ReasonMissing.
func ParseBinary(binary []byte) (Token, error) {
	if len(binary) == 0 {
		return Token{}, refused(ReasonMissing)
	}
	if len(binary) > macaroon.MaxBytes {
		return Token{}, malformed()
	}
	return adopt(append([]byte(nil), binary...))
}

// adopt makes a token of binary, which the caller must not use afterwards.
func adopt(binary []byte) (Token, error) {
	binary = macaroon.WithoutLocation(binary)
	var m macaroon.Macaroon
	if !m.Parse(binary) {
		return Token{}, malformed()
	}
	if _, ok := macaroon.ParseIdentifier(m.Identifier); !ok {
		return Token{}, malformed()
	}
	return Token{macaroon.Seal(binary)}, nil
}

func malformed() error { return refused(ReasonMalformed) }

// IsZero reports whether t is the zero Token.
func (t Token) IsZero() bool { return len(t.binary.Bytes()) == 0 }

// Reveal returns the token as text, for handing it to its bearer. Keep it out of
// logs.
func (t Token) Reveal() string { return macaroon.Encoding.EncodeToString(t.binary.Bytes()) }

// RevealBinary appends the binary form to b.
func (t Token) RevealBinary(b []byte) []byte { return append(b, t.binary.Bytes()...) }

// Equal reports whether both are the same token, in constant time.
func (t Token) Equal(other Token) bool {
	return subtle.ConstantTimeCompare(t.binary.Bytes(), other.binary.Bytes()) == 1
}

// ID returns the id that the token shares with all tokens narrowed from it.
func (t Token) ID() TokenID { return t.identifier().Token }

func (t Token) identifier() macaroon.Identifier {
	var m macaroon.Macaroon
	if !m.Parse(t.binary.Bytes()) {
		return macaroon.Identifier{} // the zero Token; all others were parsed before
	}
	id, _ := macaroon.ParseIdentifier(m.Identifier)
	return id
}

// String returns a name that does not reveal the token: "[capability key/id]".
func (t Token) String() string {
	if t.IsZero() {
		return "[no capability]"
	}
	return t.identifier().String()
}

// Format prints what String returns, for every verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// MarshalText returns what String returns, for encoders and loggers: only Reveal shows the
// token.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is Parse, so that a configuration file can contain a token.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// Tenant returns the tenant that the token was minted for; empty if it is bound
// to none. It is unproven until the daemon has accepted the token.
func (t Token) Tenant() string { return t.identifier().Tenant }

const tokenFile = "token file" // in errors

// WriteFile writes the token, as text with a newline, to a file that only its
// owner can read: after a crash there is the old file or the new one. It blocks
// on I/O. Codes: ErrInvalid (the zero Token), ErrUnavailable.
func (t Token) WriteFile(path string) error {
	if t.IsZero() {
		return privatefile.Error(driver.ErrInvalid, tokenFile, "not written: the token is empty", nil)
	}
	return privatefile.Write(path, tokenFile, []byte(t.Reveal()+"\n"))
}

// ReadTokenFile reads a token from a file that WriteFile wrote. It refuses a file
// that users other than its owner can read. It blocks on I/O. Codes: ErrNotFound
// (no such file), ErrForbidden (its mode), ErrIntegrity (no token),
// ErrUnavailable. Errors do not repeat the content of the file.
func ReadTokenFile(path string) (Token, error) {
	text, err := privatefile.Read(path, tokenFile, 2*macaroon.MaxBytes)
	if err != nil {
		return Token{}, err
	}
	token, err := Parse(strings.TrimSuffix(text, "\n"))
	if err != nil {
		return Token{}, privatefile.Error(driver.ErrIntegrity, tokenFile, "does not contain a token", err)
	}
	return token, nil
}
