package capability

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// meterBurst is how much of a rate can be used at once.
	meterBurst = time.Second
	// meterDebt bounds how long a rate can be used up in advance.
	meterDebt = 10 * 365 * 24 * time.Hour
	// meterDepth is how many of a token's caveats shares of the meter are divided
	// by: what was minted, and a few steps of narrowing.
	meterDepth = 8
	// meterSweep is how many times as long as it took a sweep is not repeated.
	meterSweep = 50
)

// A meter keeps the state of quotas: for each, until when it is used up. It is
// bounded; only what carries no information is forgotten, namely quotas that are
// not used up at all.
//
// Its room is divided by tenant, then by minted token, and then by each caveat that
// tokens were narrowed with: whoever narrows a token in a thousand ways uses up the
// share of the token that it holds, and not that of the token's siblings.
type meter struct {
	clock *clock
	pool  *share.Pool // a unit is a quota

	mu sync.Mutex // guards the fields below
	// quotas is by token and by quota.
	quotas  map[TokenID]map[bucketID]bucket
	sweepAt time.Duration // not before that
}

// A bucket is the state of a quota: until when it is used up, and whose it is.
type bucket struct {
	until time.Duration
	owner share.Path
}

func newMeter(clock *clock, quotas int) *meter {
	return &meter{clock: clock, pool: share.New("quota meters", "QuotaTokens", int64(quotas), meterBurst)}
}

// take charges a request to all quotas of a grant, or to none and says when to
// come back.
func (m *meter) take(g *Grant, r *Request) (retryAfter time.Duration, ok bool) {
	now := m.clock.monotonic()
	m.mu.Lock()
	defer m.mu.Unlock()
	buckets, ok := m.bucketsLocked(g, now)
	if !ok {
		return meterBurst, false
	}
	for i := range g.scope.quotas {
		// Something is left as long as less than the burst is used up. The rest
		// of a batch may then go beyond: otherwise a batch that is larger than a
		// second's worth could never be sent.
		if wait := buckets[g.scope.quotas[i].bucket].until - now - meterBurst; wait >= 0 {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if buckets, ok := m.bucketsLocked(g, now); ok {
		useLocked(buckets, g, now, messages, bytes)
	}
}

func useLocked(buckets map[bucketID]bucket, g *Grant, now time.Duration, messages int, bytes int64) {
	for i := range g.scope.quotas {
		q := &g.scope.quotas[i]
		amount := int64(max(messages, 0))
		if q.kind == quotaBytes {
			amount = max(bytes, 0)
		}
		took := min(float64(amount)/float64(q.limit)*float64(time.Second), float64(meterDebt))
		state := buckets[q.bucket]
		state.until = min(max(state.until, now)+time.Duration(took), now+meterDebt)
		buckets[q.bucket] = state
	}
}

// bucketsLocked returns the state of a token's quotas, which are all there; ok is
// false if there is no room for them.
func (m *meter) bucketsLocked(g *Grant, now time.Duration) (buckets map[bucketID]bucket, ok bool) {
	token := g.identifier.token
	for i := range g.scope.quotas {
		q := &g.scope.quotas[i]
		if _, known := m.quotas[token][q.bucket]; known {
			continue
		}
		owner := g.scope.owner[:q.depth]
		if m.pool.Take(owner, 1) != nil && !(m.makeRoomLocked(token, now) && m.pool.Take(owner, 1) == nil) {
			return nil, false // what was taken before is forgotten when it is free
		}
		if m.quotas == nil {
			m.quotas = make(map[TokenID]map[bucketID]bucket)
		}
		if m.quotas[token] == nil {
			m.quotas[token] = make(map[bucketID]bucket, len(g.scope.quotas))
		}
		m.quotas[token][q.bucket] = bucket{until: now, owner: owner}
	}
	return m.quotas[token], true
}

// makeRoomLocked forgets quotas that are free: those of the token, and those of all
// tokens now and then, because it looks at all of them. It reports whether there were
// any.
func (m *meter) makeRoomLocked(token TokenID, now time.Duration) bool {
	forgot := m.forgetLocked(token, now)
	if now < m.sweepAt {
		return forgot
	}
	for other := range m.quotas {
		forgot = m.forgetLocked(other, now) || forgot
	}
	m.sweepAt = now + max(meterBurst/10, meterSweep*(m.clock.monotonic()-now))
	return forgot
}

// forgetLocked forgets a token's quotas that are free, and reports whether there were
// any.
func (m *meter) forgetLocked(token TokenID, now time.Duration) (forgot bool) {
	buckets := m.quotas[token]
	for id, b := range buckets {
		if b.until <= now {
			delete(buckets, id)
			m.pool.Give(b.owner, 1)
			forgot = true
		}
	}
	if len(buckets) == 0 {
		delete(m.quotas, token)
	}
	return forgot
}
