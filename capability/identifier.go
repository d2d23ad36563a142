package capability

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
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
	id, err := ulid.ParseStrict(text)
	// The ULID package also accepts lower case and a first character that is too
	// large. Only the text that String would return is accepted here.
	if err != nil || id.String() != text {
		return TokenID{}, invalid("token id", "want the 26 characters of a ULID")
	}
	return TokenID(id), nil
}

// newTokenID returns a random id with the given time.
func newTokenID(now time.Time) TokenID {
	var id ulid.ULID
	_, _ = rand.Read(id[6:])                        // never fails, see crypto/rand
	_ = id.SetTime(uint64(max(now.UnixMilli(), 0))) // fails after the year 10889
	return TokenID(id)
}

// A KeyID names a key. It is not secret. Its text is 8 hex digits.
type KeyID uint32

// String returns 8 hex digits.
func (id KeyID) String() string { return fmt.Sprintf("%08x", uint32(id)) }

// MaxTenantBytes bounds the name of a tenant.
const MaxTenantBytes = 64

// checkTenant returns ErrInvalid if name cannot name a tenant: 1…64 letters,
// digits, dots, underscores and hyphens of ASCII.
func checkTenant(name string) error {
	if !plainName(name, MaxTenantBytes) {
		return invalid("tenant", "want 1…64 letters, digits, dots, underscores and hyphens")
	}
	return nil
}

func plainName(name string, maxBytes int) bool {
	if name == "" || len(name) > maxBytes {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// An identifier is the first field of a token: the ids of its key and of the
// token, and its tenant. The key is looked up with it.
type identifier struct {
	key    KeyID
	token  TokenID
	tenant string // empty if the token is bound to none
}

const (
	identifierVersion  = 1
	identifierMinBytes = 1 + 4 + 16
)

func (id *identifier) append(b []byte) []byte {
	b = append(b, identifierVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(id.key))
	b = append(b, id.token[:]...)
	return append(b, id.tenant...)
}

func parseIdentifier(b []byte) (identifier, bool) {
	if len(b) < identifierMinBytes || b[0] != identifierVersion {
		return identifier{}, false
	}
	id := identifier{
		key:    KeyID(binary.BigEndian.Uint32(b[1:])),
		token:  TokenID(b[5:identifierMinBytes]),
		tenant: string(b[identifierMinBytes:]),
	}
	return id, id.tenant == "" || checkTenant(id.tenant) == nil
}

func invalid(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "capability", Field: field, Detail: detail}
}
