package verify

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// meterBurst is the part of a rate that can be used at once: a second's worth.
	meterBurst = time.Second
	// meterDebt bounds how far in advance a rate can be used up.
	meterDebt = 10 * 365 * 24 * time.Hour
	// meterDepth is how many caveats of a token divide the meter further: those it
	// was minted with, and a few steps of narrowing.
	meterDepth = 8
	// meterSweep is the least time between two sweeps, in multiples of the duration
	// of the last one.
	meterSweep = 50
)

// A meter keeps the state of quotas: for each, until when it is used up. It is
// bounded; it drops only quotas that are completely free, which carry no
// information.
//
// Its capacity is divided by tenant, then by minted token, and then by each caveat
// that tokens were narrowed with: a holder that narrows a token in a thousand ways
// uses up the share of that token, and not the share of the token's siblings.
type meter struct {
	clock *clock
	pool  *share.Pool // a unit is a quota

	mu      sync.Mutex // guards the fields below
	quotas  map[capability.TokenID]map[bucketID]bucket
	sweepAt time.Duration // the next sweep happens no earlier
}

// A bucketID identifies a quota.
type bucketID = [16]byte

// A bucket is the state of a quota: until when it is used up, and the share that it
// counts against.
type bucket struct {
	until time.Duration
	owner share.Path
}

func newMeter(clock *clock, quotas int) *meter {
	return &meter{clock: clock, pool: share.New("quota meters", "QuotaTokens", int64(quotas), meterBurst)}
}

// take charges a request to all quotas of a grant. If one of them is used up, it
// charges none and returns when to try again.
func (m *meter) take(g *Grant, r *Request) (retryAfter time.Duration, ok bool) {
	now := m.clock.monotonic()
	m.mu.Lock()
	defer m.mu.Unlock()
	buckets, ok := m.bucketsLocked(g, now)
	if !ok {
		return meterBurst, false
	}
	for i := range g.scope.Quotas {
		// A request is allowed while less than the burst is used up, and may then
		// exceed it: otherwise a batch larger than a second's worth could never be
		// sent.
		if wait := buckets[g.scope.Quotas[i].Bucket].until - now - meterBurst; wait >= 0 {
			retryAfter = max(retryAfter, wait+time.Millisecond)
		}
	}
	if retryAfter > 0 {
		return retryAfter, false
	}
	if r.Operation == capability.OpSend {
		useLocked(buckets, g, now, r.Load.Messages, r.Load.Bytes)
	}
	return 0, true
}

// charge charges delivered messages to all quotas of a grant.
func (m *meter) charge(g *Grant, messages int, bytes int64) {
	now := m.clock.monotonic()
	m.mu.Lock()
	defer m.mu.Unlock()
	if buckets, ok := m.bucketsLocked(g, now); ok {
		useLocked(buckets, g, now, messages, bytes)
	}
}

func useLocked(buckets map[bucketID]bucket, g *Grant, now time.Duration, messages int, bytes int64) {
	for i := range g.scope.Quotas {
		q := &g.scope.Quotas[i]
		amount := int64(max(messages, 0))
		if q.Kind == macaroon.QuotaBytes {
			amount = max(bytes, 0)
		}
		took := min(float64(amount)/float64(q.Limit)*float64(time.Second), float64(meterDebt))
		state := buckets[q.Bucket]
		state.until = min(max(state.until, now)+time.Duration(took), now+meterDebt)
		buckets[q.Bucket] = state
	}
}

// bucketsLocked returns the state of a token's quotas and creates what is missing;
// ok is false if there is no room for them.
func (m *meter) bucketsLocked(g *Grant, now time.Duration) (buckets map[bucketID]bucket, ok bool) {
	token := g.ID()
	for i := range g.scope.Quotas {
		q := &g.scope.Quotas[i]
		if _, known := m.quotas[token][q.Bucket]; known {
			continue
		}
		owner := g.scope.owner[:q.Depth]
		if m.pool.Take(owner, 1) != nil && !(m.makeRoomLocked(token, now) && m.pool.Take(owner, 1) == nil) {
			return nil, false // units taken in this loop return when their quotas are free
		}
		if m.quotas == nil {
			m.quotas = make(map[capability.TokenID]map[bucketID]bucket)
		}
		if m.quotas[token] == nil {
			m.quotas[token] = make(map[bucketID]bucket, len(g.scope.Quotas))
		}
		m.quotas[token][q.Bucket] = bucket{until: now, owner: owner}
	}
	return m.quotas[token], true
}

// makeRoomLocked drops quotas that are free: those of the token, and from time to
// time those of all tokens, which is a full scan. It reports whether there were any.
func (m *meter) makeRoomLocked(token capability.TokenID, now time.Duration) bool {
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

// forgetLocked drops a token's quotas that are free, and reports whether there were
// any.
func (m *meter) forgetLocked(token capability.TokenID, now time.Duration) (forgot bool) {
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
