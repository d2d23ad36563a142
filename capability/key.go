package capability

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// KeyBytes is the length of a key's secret.
const KeyBytes = 32

// A Key signs and verifies tokens. It is a secret, and prints only its id. The
// zero Key means "no key".
type Key struct {
	id        KeyID
	secret    sealed
	extracted sealed // the secret after HKDF-Extract; keys of tenants are derived from it
	retiredAt time.Time
	madeAt    time.Time // in whole milliseconds; zero if that is not known
}

// NewKey returns a random key.
func NewKey() Key {
	secret := make([]byte, KeyBytes)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	var id [4]byte
	_, _ = rand.Read(id[:])
	key := makeKey(KeyID(binary.BigEndian.Uint32(id[:])), secret)
	key.madeAt = time.Now().UTC().Truncate(time.Millisecond)
	return key
}

// KeyFrom returns a key with the given secret of KeyBytes random bytes, for keys
// that are not stored by this package. It copies the secret. The error is
// ErrInvalid.
func KeyFrom(id KeyID, secret []byte) (Key, error) {
	if len(secret) != KeyBytes {
		return Key{}, invalid("key", fmt.Sprintf("has %d bytes, want %d", len(secret), KeyBytes))
	}
	return makeKey(id, append([]byte(nil), secret...)), nil
}

func makeKey(id KeyID, secret []byte) Key {
	extracted, err := hkdf.Extract(sha256.New, secret, nil)
	if err != nil {
		return Key{} // a crypto policy forbids SHA-256 or keys of this length: fail closed
	}
	return Key{id: id, secret: seal(secret), extracted: seal(extracted)}
}

// rootInfo separates the root keys of tokens from keys derived for other purposes.
const rootInfo = "mbx-macaroon"

// rootKey derives the root key for the tokens of a tenant. Each tenant has its
// own, so a token of one tenant cannot be turned into a token of another.
func (k Key) rootKey(tenant string) []byte {
	root, err := hkdf.Expand(sha256.New, k.extracted.bytes(), rootInfo+tenant, KeyBytes)
	if err != nil {
		// Expand fails only for longer keys. If it ever did, a random key makes
		// sure that no token verifies.
		root = make([]byte, KeyBytes)
		_, _ = rand.Read(root)
	}
	return root
}

// ID returns the id of the key. It is not secret.
func (k Key) ID() KeyID { return k.id }

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return k.secret.open == nil }

// RetiredAt returns from when on tokens of this key are refused; zero if the key
// is not retired.
func (k Key) RetiredAt() time.Time { return k.retiredAt }

// MadeAt returns when NewKey made the key, by the clock of that process; zero if
// that is not known, as for keys from KeyFrom.
func (k Key) MadeAt() time.Time { return k.madeAt }

// Reveal returns a copy of the secret, for storing it elsewhere. Keep it out of
// logs.
func (k Key) Reveal() []byte { return append([]byte(nil), k.secret.bytes()...) }

// String returns a name that does not reveal the key: "[key id]".
func (k Key) String() string { return "[key " + k.id.String() + "]" }

// GoString returns what String returns.
func (k Key) GoString() string { return k.String() }

// Format prints what String returns, for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// LogValue returns what String returns.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText returns what String returns: only Reveal shows the key.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
