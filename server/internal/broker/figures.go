package broker

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

const (
	// rateWindow is the time over which rates are taken: that of a point of the history.
	rateWindow = HistoryEvery
	// rateStep is the least time between two samples of the counters of a queue.
	rateStep = time.Second
	// keptFigures is how long the figures of a queue are remembered that is not watched.
	keptFigures = 10 * time.Second
)

// Figures are what a queue is like at a time.
type Figures struct {
	At time.Time
	driver.Stats
	// OldestReady is the age of the oldest ready message; 0 if there is none, or the backend does not
	// tell.
	OldestReady time.Duration
	// PerSecond is what this daemon did in the last ten seconds.
	PerSecond Rates
}

// Rates are numbers of messages a second. Failed deliveries were nacked or dead-lettered.
type Rates struct{ Sent, Delivered, Acked, Failed float64 }

// differs reports whether figures have changed, apart from an age that grows with time.
func (f *Figures) differs(before *Figures) bool {
	born, bornBefore := f.At.Add(-f.OldestReady), before.At.Add(-before.OldestReady)
	aged := f.OldestReady > 0 || before.OldestReady > 0
	return f.Stats != before.Stats || f.PerSecond != before.PerSecond || aged && born.Sub(bornBefore).Abs() > time.Second
}

// A measurement is what a look at a queue found: its figures, or why there are none.
type measurement struct {
	Figures
	err   error
	taken time.Duration // on the broker's clock
}

func (m *measurement) differs(before *measurement) bool {
	if before == nil || m.err != nil || before.err != nil {
		return before == nil || codeOf(m.err) != codeOf(before.err)
	}
	return m.Figures.differs(&before.Figures)
}

// codeOf returns the code of an error; empty if it has none.
func codeOf(err error) driver.Code {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Code
	}
	return ""
}

// A source measures one queue for all that look at it: at most one goroutine measures, and the
// others take what it found.
type source struct {
	key    queueKey
	turn   chan struct{} // holds an element while a goroutine measures
	latest atomic.Pointer[measurement]
	asked  atomic.Int64 // on the broker's clock, when its figures were last wanted
	rates  rates        // of the goroutine that measures

	// The fields below are guarded by the lock of the table.
	watches   map[*Watch]struct{}
	every     time.Duration // the shortest interval of its watches
	due       time.Duration // on the broker's clock
	announced *measurement  // what its watches were told to look at
}

// A sourceTable has the sources of the queues that are looked at.
type sourceTable struct {
	mu      sync.Mutex // guards the fields below and those of sources
	byKey   map[queueKey]*source
	sweptAt time.Duration
}

func (t *sourceTable) init() { t.byKey = make(map[queueKey]*source) }

// of returns the source of a queue.
func (t *sourceTable) of(key queueKey, now time.Duration) *source {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ofLocked(key, now)
}

func (t *sourceTable) ofLocked(key queueKey, now time.Duration) *source {
	if now-t.sweptAt > keptFigures {
		t.sweptAt = now
		for key, s := range t.byKey {
			if len(s.watches) == 0 && now-time.Duration(s.asked.Load()) > keptFigures {
				delete(t.byKey, key)
			}
		}
	}
	s := t.byKey[key]
	if s == nil {
		s = &source{key: key, turn: make(chan struct{}, 1)}
		t.byKey[key] = s
	}
	s.asked.Store(int64(now))
	return s
}

// drop forgets a source that is not watched.
func (t *sourceTable) drop(s *source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s.watches) == 0 && t.byKey[s.key] == s {
		delete(t.byKey, s.key)
	}
}

// Figures returns what a queue is like now, or was like within maxAge: callers that look at the same
// queue share a measurement. It needs a token for stats, and may block on I/O. Codes: ErrNotFound,
// ErrUnavailable.
func (c Caller) Figures(ctx context.Context, queue string, maxAge time.Duration) (Figures, error) {
	b := c.broker
	if _, err := c.authorize(ctx, capability.OpStats, queue); err != nil {
		return Figures{}, err
	}
	if err := b.admit("stats", queue, lastForReads); err != nil {
		return Figures{}, err
	}
	s := b.sources.of(queueKey{c.tenant, queue}, b.now())
	m, err := c.lookInTurn(ctx, s, maxAge)
	if err != nil {
		return Figures{}, err
	}
	if m.err != nil {
		b.sources.drop(s)
	}
	return m.Figures, m.err
}

// lookInTurn is look for a caller, who takes a turn to use the backend unless there is a measurement.
// Codes: ErrFull.
func (c *Caller) lookInTurn(ctx context.Context, s *source, maxAge time.Duration) (*measurement, error) {
	if m := c.broker.fresh(s, maxAge); m != nil {
		return m, nil
	}
	if err := c.turn(ctx, "stats", s.key.name, 1); err != nil {
		return nil, err
	}
	defer c.done(1)
	return c.broker.look(ctx, s, maxAge)
}

// fresh returns the latest measurement if it is less than maxAge old.
func (b *Broker) fresh(s *source, maxAge time.Duration) *measurement {
	if m := s.latest.Load(); m != nil && b.now()-m.taken < maxAge {
		return m
	}
	return nil
}

// look returns a measurement that is at most maxAge old. The error is that of ctx, which may end
// while another goroutine measures.
func (b *Broker) look(ctx context.Context, s *source, maxAge time.Duration) (*measurement, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m := b.fresh(s, maxAge); m != nil {
		return m, nil
	}
	m := b.measureSource(ctx, s)
	if m.err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.latest.Store(m)
	return m, nil
}

// measureSource measures a queue, for the goroutine whose turn it is.
func (b *Broker) measureSource(ctx context.Context, s *source) *measurement {
	m := &measurement{taken: b.now()}
	m.At = time.Now().UTC()
	q := b.queues.shard(s.key).acquire(s.key)
	if q == nil {
		opener := Caller{broker: b, tenant: s.key.tenant}
		if q, m.err = opener.use(ctx, "stats", s.key.name, false); m.err != nil {
			return m
		}
	}
	defer q.release(time.Duration(q.lastUsed.Load())) // looking does not count as use
	usage, err := usageOf(ctx, q.handle)
	if err != nil {
		b.gone(q, err)
		m.err = localised(err, q)
		return m
	}
	for _, shard := range usage.Shards {
		m.Stats = m.Stats.Plus(shard.Stats)
		m.OldestReady = max(m.OldestReady, shard.OldestReady)
	}
	m.PerSecond = s.rates.take(q, m.taken, func() (Rates, bool) { return b.histories.latest(q, m.At) })
	return m
}

// rates are the counters of a queue in the last moments, oldest first. A goroutine at a time uses
// them.
type rates struct {
	of      *queue
	samples []rateSample
}

type rateSample struct {
	at     time.Duration
	counts flowCounts
}

// take notes the counters of a queue, and returns the rates since a rateWindow ago. Before it has seen
// a second of the queue it asks the history.
func (r *rates) take(q *queue, now time.Duration, history func() (Rates, bool)) Rates {
	if r.of != q {
		*r = rates{of: q}
	}
	present := rateSample{now, q.flow.counts()}
	for len(r.samples) > 1 && now-r.samples[1].at >= rateWindow {
		r.samples = r.samples[1:]
	}
	if len(r.samples) > 0 && now-r.samples[0].at > 2*rateWindow {
		r.samples = r.samples[1:]
	}
	if n := len(r.samples); n == 0 || now-r.samples[n-1].at >= rateStep {
		r.samples = append(r.samples, present)
	}
	first := &r.samples[0]
	elapsed := now - first.at
	if elapsed < rateStep {
		rates, _ := history()
		return rates
	}
	return ratesOf(first.counts, present.counts, elapsed)
}

// ratesOf returns the rates between two counts, to a hundredth.
func ratesOf(before, after flowCounts, elapsed time.Duration) Rates {
	rate := func(i int) float64 {
		return math.Round(100*float64(after[i]-before[i])/elapsed.Seconds()) / 100
	}
	return Rates{Sent: rate(0), Delivered: rate(1), Acked: rate(2), Failed: rate(3)}
}

// latest returns the rates of the newest point of a queue, unless it is old.
func (h *histories) latest(q *queue, now time.Time) (Rates, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.byQueue[q.queueKey]
	if known == nil || known.of != q {
		return Rates{}, false
	}
	last := &known.points[(known.next+len(known.points)-1)%len(known.points)]
	if last.at+1 < uint32(now.UnixNano()/int64(HistoryEvery)) {
		return Rates{}, false
	}
	counts := flowCounts{uint64(last.sent), uint64(last.delivered), uint64(last.acked), uint64(last.failed)}
	return ratesOf(flowCounts{}, counts, HistoryEvery), true
}
