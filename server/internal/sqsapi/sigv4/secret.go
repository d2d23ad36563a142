package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// A Secret is a secret access key that verifies signatures. It caches the key for the
// scope of the last signature: a client signs all requests of a day with the same key.
// It is safe for concurrent use, and prints as [redacted].
type Secret struct {
	macaroon.Secret
	last atomic.Pointer[scopedKey]
}

// NewSecret returns a secret that verifies signatures.
func NewSecret(secret macaroon.Secret) *Secret { return &Secret{Secret: secret} }

// key returns the key for the scope of a signature.
func (s *Secret) key(of *Signed) *scopedKey {
	if last := s.last.Load(); last != nil && last.day == of.day && last.region == of.Region && last.service == of.Service {
		return last
	}
	key := mac([]byte("AWS4"+s.Reveal()), of.day)
	key = mac(key, of.Region)
	key = mac(key, of.Service)
	key = mac(key, terminator)
	// Cloned, because the strings are parts of the request and would keep all of it.
	scoped := &scopedKey{day: strings.Clone(of.day), region: strings.Clone(of.Region), service: strings.Clone(of.Service)}
	scoped.macs.New = func() any { return hmac.New(sha256.New, key) }
	s.last.Store(scoped)
	return scoped
}

// A scopedKey is the signing key that is derived from a secret for a scope.
type scopedKey struct {
	day, region, service string
	// macs pools instances of hash.Hash.
	macs sync.Pool
}

// sum writes the MAC of text.
func (k *scopedKey) sum(into *[sha256.Size]byte, text []byte) {
	h, _ := k.macs.Get().(hash.Hash)
	h.Reset()
	h.Write(text)
	h.Sum(into[:0])
	k.macs.Put(h)
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
