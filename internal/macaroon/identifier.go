package macaroon

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/oklog/ulid/v2"
)

const (
	// MaxTenantBytes bounds the name of a tenant.
	MaxTenantBytes = 64
	// KeyBytes is the length of a key's secret.
	KeyBytes = 32
	// RootInfo separates the root keys of tokens from keys derived for other purposes.
	RootInfo = "mbx-macaroon"

	identifierVersion  = 1
	identifierMinBytes = 1 + 4 + 16
)

// An Identifier is the first field of a token: the ids of its key and of the token,
// and its tenant. The key is looked up with it.
type Identifier struct {
	Key    uint32
	Token  [16]byte // a ULID
	Tenant string   // empty if the token is bound to none
}

// Append appends the identifier to b as a token contains it.
func (id *Identifier) Append(b []byte) []byte {
	b = append(b, identifierVersion)
	b = binary.BigEndian.AppendUint32(b, id.Key)
	b = append(b, id.Token[:]...)
	return append(b, id.Tenant...)
}

// ParseIdentifier reads what Append wrote.
func ParseIdentifier(b []byte) (id Identifier, ok bool) {
	if len(b) < identifierMinBytes || b[0] != identifierVersion {
		return Identifier{}, false
	}
	id = Identifier{
		Key:    binary.BigEndian.Uint32(b[1:]),
		Token:  [16]byte(b[5:identifierMinBytes]),
		Tenant: string(b[identifierMinBytes:]),
	}
	return id, id.Tenant == "" || ValidTenant(id.Tenant)
}

// String returns a name of the token that does not reveal it.
func (id Identifier) String() string {
	return fmt.Sprintf("[capability %08x/%s]", id.Key, ulid.ULID(id.Token))
}

// NewTokenID returns a random id with the given time.
func NewTokenID(now time.Time) [16]byte {
	var id ulid.ULID
	_, _ = rand.Read(id[6:])                        // never fails, see crypto/rand
	_ = id.SetTime(uint64(max(now.UnixMilli(), 0))) // fails after the year 10889
	return id
}

// ParseTokenID reads the 26 characters of a ULID.
func ParseTokenID(text string) (id [16]byte, ok bool) {
	parsed, err := ulid.ParseStrict(text)
	// The ULID package also accepts lower case and a first character that is too
	// large. Only the text that String would return is accepted here.
	if err != nil || parsed.String() != text {
		return [16]byte{}, false
	}
	return parsed, true
}

// ValidTenant reports whether name can name a tenant: 1…64 letters, digits, dots,
// underscores and hyphens of ASCII.
func ValidTenant(name string) bool { return plainName(name, MaxTenantBytes) }

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

// RootKey derives the root key for the tokens of a tenant from the secret of a key.
// Each tenant has its own, so a token of one tenant cannot be turned into a token of
// another.
func RootKey(secret []byte, tenant string) []byte {
	root, err := hkdf.Key(sha256.New, secret, nil, RootInfo+tenant, KeyBytes)
	if err != nil {
		// A crypto policy forbids SHA-256 or keys of this length. A random key makes
		// sure that no token verifies.
		root = make([]byte, KeyBytes)
		_, _ = rand.Read(root)
	}
	return root
}

// Begin returns the body and the signature of a token without caveats.
func Begin(rootKey []byte, id Identifier) (body []byte, c Chain) {
	text := id.Append(nil)
	c.Start(rootKey, text)
	return append(AppendSection([]byte{Version}, text), FieldEnd), c
}

// Extend returns a token with further caveats, of which it gets the body and the
// signature. It changes the chain.
func Extend(body []byte, c *Chain, caveats []string) []byte {
	token := append(make([]byte, 0, Size(body, caveats)), body[:len(body)-1]...) // without the mark that ends the caveats
	for _, caveat := range caveats {
		token = AppendSection(token, []byte(caveat))
		c.Add([]byte(caveat))
	}
	return AppendSignature(append(token, FieldEnd), (*[SignatureBytes]byte)(c))
}

// Size returns how many bytes Extend returns.
func Size(body []byte, caveats []string) int {
	size := len(body) + 2 + SignatureBytes
	for _, caveat := range caveats {
		size += 1 + lengthBytes(len(caveat)) + len(caveat) + 1
	}
	return size
}

// NarrowedMark is the first byte of the id of a narrowed token. The id of a minted
// token begins with the time, which reaches this byte in about 7,900 years.
const NarrowedMark = 0xff

// NarrowedIDs yields the narrowed ids of a minted token with the first caveat of m, with
// its first two, and so on up to count of them.
func NarrowedIDs(minted [16]byte, m *Macaroon, count int) iter.Seq[[16]byte] {
	return func(yield func([16]byte) bool) {
		hash := sha256.New()
		hash.Write([]byte("mailbox narrowed token 1"))
		hash.Write(minted[:])
		var length, sum [sha256.Size]byte
		for i := range count {
			caveat := m.Caveat(i)
			hash.Write(binary.AppendUvarint(length[:0], uint64(len(caveat))))
			hash.Write(caveat)
			id := [16]byte(hash.Sum(sum[:0])[:16])
			id[0] = NarrowedMark
			if !yield(id) {
				return
			}
		}
	}
}
