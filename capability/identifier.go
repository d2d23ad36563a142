package capability

import (
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// A TokenID names a token and all tokens narrowed from it. It is a ULID, so it
// contains the time when the token was minted. It is not secret.
type TokenID [16]byte

// String returns the 26 characters of the ULID.
func (id TokenID) String() string { return ulid.ULID(id).String() }

// IsZero reports whether id names no token.
func (id TokenID) IsZero() bool { return id == TokenID{} }

// MintedAt returns when the token was minted, by the clock of the minter.
func (id TokenID) MintedAt() time.Time { return ulid.ULID(id).Timestamp().UTC() }

// MarshalText returns what String returns.
func (id TokenID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseTokenID.
func (id *TokenID) UnmarshalText(text []byte) error {
	parsed, err := ParseTokenID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ParseTokenID reads the 26 characters of a ULID. The error is ErrInvalid.
func ParseTokenID(text string) (TokenID, error) {
	id, ok := macaroon.ParseTokenID(text)
	if !ok {
		return TokenID{}, invalid("token id", "want the 26 characters of a ULID")
	}
	return id, nil
}

// A KeyID names a key. It is not secret. Its text is 8 hex digits.
type KeyID uint32

// String returns 8 hex digits.
func (id KeyID) String() string { return fmt.Sprintf("%08x", uint32(id)) }

func invalid(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "capability", Field: field, Detail: detail}
}
