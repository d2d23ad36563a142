package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// uniqueKeys counts the unique keys that messages hold for each owner, so that no tenant
// fills the memory with keys in many queues. A key counts from the send on. Its message may end in
// many ways, also through another process, so ends are not followed: what counts is compared with what queues hold
// when a send is refused, and when queues are measured. Keys of before the daemon started, and those
// of messages that are redriven or moved, are not counted.
type uniqueKeys struct {
	pool *share.Pool

	mu sync.Mutex // guards the fields below
	// counted has the keys of each owner, by tenant and queue.
	counted   map[string]map[string]map[[2]share.Key]int64
	checkedAt time.Duration // when a refused send last compared; 0: never
}

const (
	// checkEvery, checkQueues and checkFor bound how often refused sends compare, and how many
	// queues they ask for how long. The queues of their tenant come first.
	checkEvery  = time.Second
	checkQueues = 64
	checkFor    = time.Second
)

func (k *uniqueKeys) init() {
	k.pool = share.New("unique keys", "global_dedup", 0, retryDedup)
	k.counted = make(map[string]map[string]map[[2]share.Key]int64)
}

// settle counts the held ones of the taken keys, and gives the others back.
func (k *uniqueKeys) settle(key queueKey, owner [2]share.Key, taken, held int64) {
	k.pool.Give(owner[:], taken-held)
	if held == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	queues := k.counted[key.tenant]
	if queues == nil {
		queues = make(map[string]map[[2]share.Key]int64)
		k.counted[key.tenant] = queues
	}
	if queues[key.name] == nil {
		queues[key.name] = make(map[[2]share.Key]int64)
	}
	queues[key.name][owner] += held
}

// of returns how many keys count in a queue.
func (k *uniqueKeys) of(key queueKey) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ofLocked(key)
}

func (k *uniqueKeys) ofLocked(key queueKey) (n int64) {
	for _, count := range k.counted[key.tenant][key.name] {
		n += count
	}
	return n
}

// lower gives keys of a queue back, first those of the owner that has most: counted was what of returned before the queue was asked, and held
// what it answered. Several may compare at once, so no fewer than held stay.
func (k *uniqueKeys) lower(key queueKey, counted, held int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	owners := k.counted[key.tenant][key.name]
	for n := min(counted, k.ofLocked(key)) - held; n > 0 && len(owners) > 0; {
		var most [2]share.Key
		for owner, count := range owners {
			if count > owners[most] {
				most = owner
			}
		}
		part := min(n, owners[most])
		k.pool.Give(most[:], part)
		n -= part
		if owners[most] -= part; owners[most] == 0 {
			delete(owners, most)
		}
	}
	if len(owners) == 0 {
		delete(k.counted[key.tenant], key.name)
	}
	if len(k.counted[key.tenant]) == 0 {
		delete(k.counted, key.tenant)
	}
}

// toCheck returns some queues whose keys count, those of the tenant first, or none if that was
// done a moment ago.
func (k *uniqueKeys) toCheck(tenant string, now time.Duration) (keys []queueKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.checkedAt != 0 && now-k.checkedAt < checkEvery {
		return nil
	}
	k.checkedAt = max(1, now)
	add := func(tenant string) {
		for name := range k.counted[tenant] {
			if len(keys) == checkQueues {
				return
			}
			keys = append(keys, queueKey{tenant, name})
		}
	}
	add(tenant)
	for other := range k.counted {
		if other != tenant {
			add(other)
		}
	}
	return keys
}

// takeUniqueKeys takes room in the caller's share for n unique keys of messages that are about to be
// sent. Codes: ErrFull.
func (c *Caller) takeUniqueKeys(ctx context.Context, q *queue, n int64) error {
	k, owner := &c.broker.unique, c.owner()
	err := k.pool.Take(owner[:], n)
	if err != nil && c.broker.checkUniqueKeys(ctx, c.tenant) {
		err = k.pool.Take(owner[:], n)
	}
	if err != nil {
		return refusedShare(err, "send", q.name)
	}
	return nil
}

// settleUniqueKeys counts the unique keys that messages hold, or may hold, after a send.
func (c *Caller) settleUniqueKeys(s *sendCall, sent []driver.Sent, err error) {
	held := int64(0)
	for i := range s.stamped {
		if s.stamped[i].UniqueKey != "" && mayBeSent(sent, err, i) {
			held++
		}
	}
	c.broker.unique.settle(s.queue.queueKey, c.owner(), s.uniqueKeys, held)
}

// checkUniqueKeys compares the keys that count with those that queues hold. It reports false if
// that was done a moment ago.
func (b *Broker) checkUniqueKeys(ctx context.Context, tenant string) bool {
	keys := b.unique.toCheck(tenant, b.now())
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	for _, key := range keys {
		counted := b.unique.of(key) // before, so that keys of later sends do not seem to be gone
		if held, err := b.uniqueKeysIn(ctx, key); err == nil {
			b.unique.lower(key, counted, held)
		}
	}
	return len(keys) > 0
}

// uniqueKeysIn returns how many unique keys the messages of a queue hold. It creates no queue.
func (b *Broker) uniqueKeysIn(ctx context.Context, key queueKey) (int64, error) {
	if q := b.queues.shard(key).acquire(key); q != nil {
		defer q.release(time.Duration(q.lastUsed.Load())) // measuring does not count as use
		usage, err := q.handle.Usage(ctx)
		return int64(usage.UniqueKeys), err
	}
	name, err := backendName(key.tenant, key.name)
	if err == nil && b.admin != nil {
		_, err = b.admin.QueueConfig(ctx, name)
	}
	if errors.Is(err, driver.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	handle, err := b.opener.OpenQueue(ctx, name)
	if err != nil {
		return 0, err
	}
	defer handle.Close()
	usage, err := handle.Usage(ctx)
	return int64(usage.UniqueKeys), err
}
