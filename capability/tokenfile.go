package capability

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

const tokenFile = "token file" // in errors

// WriteFile writes the token, as text with a newline, to a file that only its
// owner can read: after a crash there is the old file or the new one. It blocks
// on I/O. Codes: ErrInvalid (the zero Token), ErrUnavailable.
func (t Token) WriteFile(path string) error {
	if t.IsZero() {
		return fileError(driver.ErrInvalid, tokenFile, "is not written: there is no token", nil)
	}
	return writePrivate(path, tokenFile, []byte(t.Reveal()+"\n"))
}

// ReadTokenFile reads a token from a file that WriteFile wrote. It refuses a file
// that others than its owner can read. It blocks on I/O. Codes: ErrNotFound (no
// such file), ErrForbidden (its mode), ErrIntegrity (no token), ErrUnavailable.
// Errors do not repeat what is in the file.
func ReadTokenFile(path string) (Token, error) {
	text, err := readPrivate(path, tokenFile, 2*MaxTokenBytes)
	if err != nil {
		return Token{}, err
	}
	token, err := Parse(strings.TrimSuffix(text, "\n"))
	if err != nil {
		return Token{}, fileError(driver.ErrIntegrity, tokenFile, "holds no token", err)
	}
	return token, nil
}
