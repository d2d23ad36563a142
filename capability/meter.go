package capability

import (
	"sync"
	"time"
)

const (
	// meterBurst is how much of a rate can be used at once.
	meterBurst = time.Second
	// meterDebt bounds how long a rate can be used up in advance.
	meterDebt = 10 * 365 * 24 * time.Hour
	// bucketsPerToken bounds what one token can cost: whoever has it can narrow
	// it in as many ways as they like, each with a quota of its own.
	bucketsPerToken = 64
	meterShards     = 16
)

// A meter keeps the state of quotas: for each, until when it is used up. It is
// bounded; only what carries no information is forgotten, namely quotas that are
// not used up at all.
type meter struct {
	clock  *clock
	limit  int // tokens in each shard
	shards [meterShards]meterShard
}

type meterShard struct {
	mu sync.Mutex // guards the fields below
	// usedUntil is by token and by quota.
	usedUntil map[TokenID]map[bucketID]time.Duration
	sweptAt   time.Duration
}

func newMeter(clock *clock, tokens int) *meter {
	return &meter{clock: clock, limit: max(1, tokens/meterShards)}
}

// take charges a request to all quotas of a grant, or to none and says when to
// come back.
func (m *meter) take(g *Grant, r *Request) (retryAfter time.Duration, ok bool) {
	now := m.clock.monotonic()
	shard := &m.shards[g.identifier.token[15]%meterShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	buckets, retryAfter := shard.bucketsLocked(g, now, m.limit)
	if buckets == nil {
		return retryAfter, false
	}
	for i := range g.scope.quotas {
		// Something is left as long as less than the burst is used up. The rest
		// of a batch may then go beyond: otherwise a batch that is larger than a
		// second's worth could never be sent.
		if wait := buckets[g.scope.quotas[i].bucket] - now - meterBurst; wait >= 0 {
			retryAfter = max(retryAfter, wait+time.Millisecond)
		}
	}
	if retryAfter > 0 {
		return retryAfter, false
	}
	if r.Operation == OpSend {
		useLocked(buckets, g, now, r.Load.Messages, r.Load.Bytes)
	}
	return 0, true
}

// charge charges what was handed out.
func (m *meter) charge(g *Grant, messages int, bytes int64) {
	now := m.clock.monotonic()
	shard := &m.shards[g.identifier.token[15]%meterShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if buckets, _ := shard.bucketsLocked(g, now, m.limit); buckets != nil {
		useLocked(buckets, g, now, messages, bytes)
	}
}

func useLocked(buckets map[bucketID]time.Duration, g *Grant, now time.Duration, messages int, bytes int64) {
	for i := range g.scope.quotas {
		q := &g.scope.quotas[i]
		amount := int64(max(messages, 0))
		if q.kind == quotaBytes {
			amount = max(bytes, 0)
		}
		took := min(float64(amount)/float64(q.limit)*float64(time.Second), float64(meterDebt))
		buckets[q.bucket] = min(max(buckets[q.bucket], now)+time.Duration(took), now+meterDebt)
	}
}

// bucketsLocked returns the state of a token's quotas, or nil if there is no
// room for it.
func (s *meterShard) bucketsLocked(g *Grant, now time.Duration, limit int) (buckets map[bucketID]time.Duration, retryAfter time.Duration) {
	buckets = s.usedUntil[g.identifier.token]
	missing := 0
	for i := range g.scope.quotas {
		if _, ok := buckets[g.scope.quotas[i].bucket]; !ok {
			missing++
		}
	}
	if missing == 0 {
		return buckets, 0
	}
	if len(buckets)+missing > bucketsPerToken {
		if forget(buckets, now); len(buckets)+missing > bucketsPerToken {
			return nil, meterBurst
		}
	}
	if buckets == nil {
		if len(s.usedUntil) >= limit && !s.sweepLocked(now, limit) {
			return nil, meterBurst
		}
		buckets = make(map[bucketID]time.Duration, missing)
		if s.usedUntil == nil {
			s.usedUntil = make(map[TokenID]map[bucketID]time.Duration)
		}
		s.usedUntil[g.identifier.token] = buckets
	}
	for i := range g.scope.quotas {
		id := g.scope.quotas[i].bucket
		buckets[id] = max(buckets[id], now)
	}
	return buckets, 0
}

// sweepLocked makes room by forgetting tokens whose quotas are all free again.
// It looks at most once in a while, because it looks at everything.
func (s *meterShard) sweepLocked(now time.Duration, limit int) bool {
	if s.sweptAt != 0 && now-s.sweptAt < meterBurst/10 {
		return false
	}
	s.sweptAt = now
	for token, buckets := range s.usedUntil {
		if forget(buckets, now); len(buckets) == 0 {
			delete(s.usedUntil, token)
		}
	}
	return len(s.usedUntil) < limit
}

// forget removes quotas that are free.
func forget(buckets map[bucketID]time.Duration, now time.Duration) {
	for id, until := range buckets {
		if until <= now {
			delete(buckets, id)
		}
	}
}
