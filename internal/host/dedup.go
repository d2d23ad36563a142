package host

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// dedup is the dedup table of a queue. Whoever sends with a key holds it until
// the message is in its shard, so that a key and its message come together.
type dedup struct {
	mu    sync.Mutex    // guards the field below; taken before a shard's
	table *engine.Dedup // nil until there is a key: most queues have none
}

// configure follows the settings of the queue.
func (d *dedup) configure(s *settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table != nil {
		d.table.Configure(s.dedup())
	}
}

// tableLocked returns the table, made for the settings of the queue if need be.
func (d *dedup) tableLocked(s *settings) *engine.Dedup {
	if d.table == nil {
		d.table = engine.NewDedup(s.dedup())
	}
	return d.table
}

// ForgetDedup empties the table, and waits until that is durable.
func (h *handle) ForgetDedup(ctx context.Context) error {
	if err := h.check(ctx, "forget dedup keys"); err != nil {
		return err
	}
	h.dedup.mu.Lock()
	h.dedup.table = nil
	if h.journal != nil { // in the order in which keys are remembered
		h.journal.Lock()
		h.journal.DedupForgotten(h.id)
		h.journal.Unlock()
	}
	h.dedup.mu.Unlock()
	return h.named(h.backend.barrier(), "forget dedup keys")
}

// keys is how many keys are remembered.
func (d *dedup) keys(now engine.Moment) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table == nil {
		return 0
	}
	return d.table.Remembered(now.At)
}

// dedup returns for how long keys are remembered, and how many: at some 62 bytes
// an entry, driver.DefaultDedupMax keys are 62 MB.
func (s *settings) dedup() (window time.Duration, most int) {
	most = s.config.Effective().DedupMax
	if most == driver.Off {
		most = math.MaxInt
	}
	return s.traits.DedupWindow, most
}

// digests hashes a dedup key and a body with the secret, so that nobody can
// construct two keys that share a digest. Queues share the hashers: they are
// large, and few are used at a time.
func (b *Backend) digests(key string, body []byte) (keyDigest, payload engine.Digest) {
	hasher, ok := b.hashers.Get().(*blake3.Hasher)
	if !ok {
		hasher, _ = blake3.NewKeyed(b.options.Secret[:]) // fails only for another length
	}
	hasher.Reset()
	_, _ = hasher.WriteString(key)
	keyDigest = digest(hasher)
	hasher.Reset()
	_, _ = hasher.Write(body)
	payload = digest(hasher)
	b.hashers.Put(hasher)
	return keyDigest, payload
}

func digest(hasher *blake3.Hasher) (digest engine.Digest) {
	var sum [32]byte
	hasher.Sum(sum[:0])
	copy(digest[:], sum[:])
	return digest
}
