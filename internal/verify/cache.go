package verify

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	cacheShards = 16
	// cacheUnit is the token size that counts as one entry: the memory of a verdict
	// grows with the caveats of its token.
	cacheUnit = 512
)

// A cache remembers which tokens are genuine and what they allow. It does not
// remember decisions: times, queues and quotas are checked for every request. It
// identifies tokens by their hash and does not keep them.
//
// It is bounded by two generations: when the young one is full it replaces the
// old one, whose entries are dropped. An entry that is used moves back to the
// young generation, so that frequently used entries stay.
type cache struct {
	half   int // the size of one generation of a shard
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu         sync.Mutex // guards the fields below
	young, old map[cacheKey]*verdict
	weight     int // of young
}

type cacheKey [sha256.Size]byte

func newCache(entries int) *cache {
	return &cache{half: max(1, entries/cacheShards/2)}
}

func (c *cache) get(key *cacheKey, now time.Duration) *verdict {
	shard := &c.shards[key[0]%cacheShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if v := shard.young[*key]; v != nil {
		if now < v.freshUntil {
			return v
		}
		delete(shard.young, *key)
		return nil
	}
	v := shard.old[*key]
	if v == nil {
		return nil
	}
	delete(shard.old, *key)
	if now >= v.freshUntil {
		return nil
	}
	shard.putLocked(key, v, c.half)
	return v
}

func (c *cache) put(key *cacheKey, v *verdict) {
	shard := &c.shards[key[0]%cacheShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.old, *key)
	shard.putLocked(key, v, c.half)
}

func (s *cacheShard) putLocked(key *cacheKey, v *verdict, half int) {
	weight := max(1, v.weight)
	if len(s.young) > 0 && s.weight+weight > half {
		s.young, s.old, s.weight = nil, s.young, 0
	}
	s.weight += weight
	if s.young == nil {
		s.young = make(map[cacheKey]*verdict)
	}
	s.young[*key] = v
}

// purge drops all entries.
func (c *cache) purge() {
	for i := range c.shards {
		shard := &c.shards[i]
		shard.mu.Lock()
		shard.young, shard.old, shard.weight = nil, nil, 0
		shard.mu.Unlock()
	}
}

func (c *cache) entries() int {
	n := 0
	for i := range c.shards {
		shard := &c.shards[i]
		shard.mu.Lock()
		n += len(shard.young) + len(shard.old)
		shard.mu.Unlock()
	}
	return n
}
