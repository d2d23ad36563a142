package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// dedupKeys counts the dedup keys that the backend remembers for each owner, so that
// no tenant fills the memory with keys in many queues. A key counts from the send on
// until its window ends, even if its queue is deleted before. Keys that the backend
// remembers from before the daemon started are not counted.
type dedupKeys struct {
	pool *share.Pool

	mu sync.Mutex // guards the fields below
	// ending has the keys of each owner by the second in which their window ends.
	ending map[int64]map[[2]share.Key]int64
	swept  int64 // seconds up to this one are not in ending
}

// retryDedup is the RetryAfter of the limit of dedup keys.
const retryDedup = 5 * time.Second

func (k *dedupKeys) init() {
	k.pool = share.New("dedup keys", "global_dedup", 0, retryDedup)
	k.ending = make(map[int64]map[[2]share.Key]int64)
}

// take takes room for n keys from the owner's share. The error is ErrFull.
func (k *dedupKeys) take(owner [2]share.Key, n int64, now time.Duration) error {
	k.expire(now)
	return k.pool.Take(owner[:], n)
}

// settle counts the remembered ones of the taken keys, and gives the others back.
func (k *dedupKeys) settle(owner [2]share.Key, taken, remembered int64, ends time.Duration) {
	k.pool.Give(owner[:], taken-remembered)
	if remembered == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	second := max(int64(ends/time.Second), k.swept) + 1
	owners := k.ending[second]
	if owners == nil {
		owners = make(map[[2]share.Key]int64)
		k.ending[second] = owners
	}
	owners[owner] += remembered
}

// expire gives back the keys whose window has ended.
func (k *dedupKeys) expire(now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for last := int64(now / time.Second); k.swept < last; {
		k.swept++
		for owner, n := range k.ending[k.swept] {
			k.pool.Give(owner[:], n)
		}
		delete(k.ending, k.swept)
	}
}

// stats are the figures of the pool, without the keys whose window has ended.
func (k *dedupKeys) stats(now time.Duration) share.Stats {
	k.expire(now)
	return k.pool.Stats()
}

// takeKeys takes room in the caller's shares for the dedup and unique keys of messages that are
// about to be sent: before they cost anything else. Codes: ErrFull.
func (c *Caller) takeKeys(ctx context.Context, s *sendCall, q *queue, traits *driver.Traits, messages []Outgoing) error {
	keys, unique := int64(0), int64(0)
	for i := range messages {
		if messages[i].DedupKey != "" {
			keys++
		}
		if messages[i].UniqueKey != "" && traits.Usage {
			unique++
		}
	}
	if keys > 0 {
		if err := c.broker.dedup.take(c.owner(), keys, c.broker.now()); err != nil {
			return refusedShare(err, "send", q.name)
		}
	}
	if unique > 0 {
		if err := c.takeUniqueKeys(ctx, q, unique); err != nil {
			c.broker.dedup.settle(c.owner(), keys, 0, 0)
			return err
		}
	}
	s.keys, s.uniqueKeys = keys, unique
	return nil
}

// settleKeys counts the dedup keys that the backend remembers, or may remember, after a
// send.
func (c *Caller) settleKeys(s *sendCall, sent []driver.Sent, err error) {
	remembered := int64(0)
	for i := range s.stamped {
		if s.stamped[i].DedupKey != "" && mayRemember(&s.stamped[i], sent, err, i) {
			remembered++
		}
	}
	c.broker.dedup.settle(c.owner(), s.keys, remembered, c.broker.now()+s.window)
}

// mayRemember reports whether the backend remembers, or may remember, a new key for a
// message. Keys of cancelled sends count too, and so do those of messages that were not added
// because their unique key is held.
func mayRemember(msg *driver.Outgoing, sent []driver.Sent, err error, i int) bool {
	return mayBeSent(sent, err, i) || msg.UniqueKey != "" && driver.At(err, i) == nil && i < len(sent)
}

// mayBeSent reports whether a send added a message, or may have.
func mayBeSent(sent []driver.Sent, err error, i int) bool {
	failure := driver.At(err, i)
	if failure == nil {
		return i < len(sent) && !sent[i].Duplicate
	}
	for _, refused := range []driver.Code{driver.ErrInvalid, driver.ErrConflict, driver.ErrFull, driver.ErrTooLarge, driver.ErrNotFound, driver.ErrUnsupported} {
		if errors.Is(failure, refused) {
			return false
		}
	}
	return true
}
