package keyring

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// A Key signs and verifies tokens. It is a secret, and prints only its id. The
// zero Key means "no key".
type Key struct {
	id        capability.KeyID
	secret    macaroon.Sealed
	retiredAt time.Time
	madeAt    time.Time // in whole milliseconds; zero if that is not known
}

// NewKey returns a random key.
func NewKey() Key {
	secret := make([]byte, macaroon.KeyBytes)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	var id [4]byte
	_, _ = rand.Read(id[:])
	return Key{
		id: capability.KeyID(binary.BigEndian.Uint32(id[:])), secret: macaroon.Seal(secret),
		madeAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// KeyFrom returns a key with the given secret of 32 random bytes, for keys
// that are not stored by this package. It copies the secret. The error is
// ErrInvalid.
func KeyFrom(id capability.KeyID, secret []byte) (Key, error) {
	if len(secret) != macaroon.KeyBytes {
		return Key{}, invalid("key", fmt.Sprintf("has %d bytes, want %d", len(secret), macaroon.KeyBytes))
	}
	return Key{id: id, secret: macaroon.Seal(bytes.Clone(secret))}, nil
}

// ID returns the id of the key. It is not secret.
func (k Key) ID() capability.KeyID { return k.id }

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return len(k.secret.Bytes()) == 0 }

// RetiredAt returns from when on tokens of this key are refused; zero if the key
// is not retired.
func (k Key) RetiredAt() time.Time { return k.retiredAt }

// MadeAt returns when NewKey made the key, by the clock of that process; zero if
// that is not known, as for keys from KeyFrom.
func (k Key) MadeAt() time.Time { return k.madeAt }

// Reveal returns a copy of the secret, for storing it elsewhere. Keep it out of
// logs.
func (k Key) Reveal() []byte { return bytes.Clone(k.secret.Bytes()) }

// String returns a name that does not reveal the key: "[key id]".
func (k Key) String() string { return "[key " + k.id.String() + "]" }

// Format prints what String returns, for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText returns what String returns: only Reveal shows the key.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
