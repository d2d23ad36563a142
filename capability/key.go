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

// A Key makes and verifies tokens. It is a secret, and prints nothing but its
// id. The zero Key is none.
type Key struct {
	id        KeyID
	secret    sealed
	extracted sealed // the secret, ready to derive keys of tenants from
	retiredAt time.Time
	madeAt    time.Time // in whole milliseconds; zero if that is not known
}

// NewKey makes a key of random numbers.
func NewKey() Key {
	secret := make([]byte, KeyBytes)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	var id [4]byte
	_, _ = rand.Read(id[:])
	key := makeKey(KeyID(binary.BigEndian.Uint32(id[:])), secret)
	key.madeAt = time.Now().UTC().Truncate(time.Millisecond)
	return key
}

// KeyFrom returns a key with a given secret of KeyBytes random bytes, for keys
// that are kept elsewhere. It copies the secret. The error is ErrInvalid.
func KeyFrom(id KeyID, secret []byte) (Key, error) {
	if len(secret) != KeyBytes {
		return Key{}, invalid("key", fmt.Sprintf("has %d bytes, want %d", len(secret), KeyBytes))
	}
	return makeKey(id, append([]byte(nil), secret...)), nil
}

func makeKey(id KeyID, secret []byte) Key {
	extracted, err := hkdf.Extract(sha256.New, secret, nil)
	if err != nil {
		return Key{} // a policy forbids SHA-256 or keys of this length: no key, no tokens
	}
	return Key{id: id, secret: seal(secret), extracted: seal(extracted)}
}

// rootInfo keeps the root keys of tokens from being keys for anything else.
const rootInfo = "mbx-macaroon"

// rootKey derives the root key for the tokens of a tenant. Tenants have keys of
// their own, so that no token of one can be made into a token of another.
func (k Key) rootKey(tenant string) []byte {
	root, err := hkdf.Expand(sha256.New, k.extracted.bytes(), rootInfo+tenant, KeyBytes)
	if err != nil {
		// It fails only for longer keys. If it ever did, then with a key that
		// nobody can guess and no token fits.
		root = make([]byte, KeyBytes)
		_, _ = rand.Read(root)
	}
	return root
}

// ID names the key. It is not secret.
func (k Key) ID() KeyID { return k.id }

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.secret.open == nil }

// RetiredAt is when tokens of this key cease to be accepted; zero if that was
// not decided.
func (k Key) RetiredAt() time.Time { return k.retiredAt }

// MadeAt is when NewKey made it, by the clock of who did; zero if that is not
// known, as of keys that are kept elsewhere.
func (k Key) MadeAt() time.Time { return k.madeAt }

// Reveal returns a copy of the secret, for who keeps it elsewhere. Keep it out
// of logs.
func (k Key) Reveal() []byte { return append([]byte(nil), k.secret.bytes()...) }

// String names the key without giving it away: "[key id]".
func (k Key) String() string { return "[key " + k.id.String() + "]" }

// GoString returns what String returns.
func (k Key) GoString() string { return k.String() }

// Format prints what String returns, for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// LogValue is what String returns.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText returns what String returns: a key leaves only by Reveal.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
