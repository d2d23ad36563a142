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

// dedup is the dedup table of a queue. A send with a key locks it until the message is
// in its shard, so that a key and its message are stored together.
type dedup struct {
	mu    sync.Mutex    // guards the field below; taken before a shard's
	table *engine.Dedup // nil until the first key: most queues have none
}

// configure applies new settings of the queue.
func (d *dedup) configure(s *settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table != nil {
		d.table.Configure(s.dedup())
	}
}

// tableLocked returns the table, and creates it if it is nil.
func (d *dedup) tableLocked(s *settings) *engine.Dedup {
	if d.table == nil {
		d.table = engine.NewDedup(s.dedup())
	}
	return d.table
}

// ForgetDedup forgets all dedup keys, and waits until that is durable.
func (h *handle) ForgetDedup(ctx context.Context) error {
	if err := h.check(ctx, "forget dedup keys"); err != nil {
		return err
	}
	h.dedup.mu.Lock()
	h.dedup.table = nil
	if h.journal != nil { // under the same lock as Remembered, to keep the order
		h.journal.Lock()
		h.journal.DedupForgotten(h.id)
		h.journal.Unlock()
	}
	h.dedup.mu.Unlock()
	return h.named(h.backend.barrier(), "forget dedup keys")
}

// keys returns the number of remembered keys.
func (d *dedup) keys(now engine.Moment) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table == nil {
		return 0
	}
	return d.table.Remembered(now.At)
}

// dedup returns the dedup window, and the maximum number of keys: at about 62 bytes a
// key, driver.DefaultDedupMax keys take 62 MB.
func (s *settings) dedup() (window time.Duration, most int) {
	most = s.config.Effective().DedupMax
	if most == driver.Off {
		most = math.MaxInt
	}
	return s.traits.DedupWindow, most
}

// digests hashes a dedup key and a body with the secret, so that a client cannot
// construct two keys with the same digest. Queues share the hashers, which are large.
func (b *Backend) digests(key string, body []byte) (keyDigest, content engine.Digest) {
	hasher, ok := b.hashers.Get().(*blake3.Hasher)
	if !ok {
		hasher, _ = blake3.NewKeyed(b.options.Secret[:]) // fails only for another length
	}
	hasher.Reset()
	_, _ = hasher.WriteString(key)
	keyDigest = digest(hasher)
	hasher.Reset()
	_, _ = hasher.Write(body)
	content = digest(hasher)
	b.hashers.Put(hasher)
	return keyDigest, content
}

func digest(hasher *blake3.Hasher) (digest engine.Digest) {
	var sum [32]byte
	hasher.Sum(sum[:0])
	copy(digest[:], sum[:])
	return digest
}
