package host

import (
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// dedup is the dedup table of a queue. Whoever sends with a key holds it until
// the message is in its shard, so that a key and its message come together.
type dedup struct {
	mu     sync.Mutex // guards the fields below; taken before a shard's
	table  *engine.Dedup
	secret [32]byte
	hasher *blake3.Hasher // nil until there is a key: it is large, and most queues have none
}

// init takes the secret that keys are hashed with, so that nobody can
// construct two dedup keys that share a digest.
func (d *dedup) init(secret [32]byte) {
	d.secret = secret
	d.table = engine.NewDedup(0, 0)
}

func (d *dedup) configure(window time.Duration, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Configure(window, most)
}

// digestLocked hashes a dedup key or a body.
func (d *dedup) digestLocked(hash func()) (digest engine.Digest) {
	if d.hasher == nil {
		d.hasher, _ = blake3.NewKeyed(d.secret[:]) // fails only for another length
	}
	d.hasher.Reset()
	hash()
	var sum [32]byte
	d.hasher.Sum(sum[:0])
	copy(digest[:], sum[:])
	return digest
}

func (d *dedup) keyLocked(key string) engine.Digest {
	return d.digestLocked(func() { _, _ = d.hasher.WriteString(key) })
}

func (d *dedup) payloadLocked(body []byte) engine.Digest {
	return d.digestLocked(func() { _, _ = d.hasher.Write(body) })
}
