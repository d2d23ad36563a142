package broker

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// HistoryEvery is the time between two points of a history, and historyPoints how many a queue
	// has at most: an hour.
	HistoryEvery  = 10 * time.Second
	historyPoints = 360
	// maxHistories bounds the queues that have a history, of all tenants. A point has 40 bytes, and 360 of them
	// take 16 KiB of memory, so histories have 4.3 MB at most.
	maxHistories = 256
	// historyBudget bounds the time for measuring all queues for one point.
	historyBudget = 2 * time.Second
)

// A flow counts what goes through a queue, since it was opened.
type flow struct{ sent, delivered, acked, failed atomic.Uint64 }

// flowCounts are the counters of a flow at one time.
type flowCounts [4]uint64

func (f *flow) counts() flowCounts {
	return flowCounts{f.sent.Load(), f.delivered.Load(), f.acked.Load(), f.failed.Load()}
}

// A historyPoint is a Point in little room.
type historyPoint struct {
	at                             uint32 // in HistoryEvery
	ready, delayed, inFlight, dead uint32
	oldest                         uint32 // in milliseconds
	sent, delivered, acked, failed uint32 // since the point before
}

// A Point is what a queue was like at a time.
type Point struct {
	At                             time.Time
	Ready, Delayed, InFlight, Dead int
	// OldestReady is the age of the oldest ready message; 0 if there is none, or the backend does not
	// tell.
	OldestReady time.Duration
	// Sent, Delivered, Acked and Failed count what this daemon did since the point before. Failed
	// deliveries were nacked or dead-lettered.
	Sent, Delivered, Acked, Failed int
}

// A queueHistory is the last hour of a queue.
type queueHistory struct {
	points []historyPoint // a ring once it is full
	next   int
	of     *queue // its counts are those below
	used   int64  // queue.lastUsed at the last point
	counts flowCounts
}

// histories are those of the queues that were used last. Tenants share the bound (OPS-4).
type histories struct {
	pool *share.Pool

	mu      sync.Mutex // guards the fields below
	byQueue map[queueKey]*queueHistory
}

func (h *histories) init() {
	h.pool = share.New("histories", "the console", maxHistories, HistoryEvery)
	h.byQueue = make(map[queueKey]*queueHistory)
}

// RunHistory measures the queues that are used, every HistoryEvery, until ctx ends.
func (b *Broker) RunHistory(ctx context.Context) {
	ticker := time.NewTicker(HistoryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			b.Sample(ctx, now)
		}
	}
}

// Sample adds a point to the history of each queue that was used since its last one, or has messages.
// RunHistory calls it.
func (b *Broker) Sample(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, historyBudget)
	defer cancel()
	queues := b.queues.all()
	slices.SortFunc(queues, func(x, y *queue) int { return cmp.Compare(y.lastUsed.Load(), x.lastUsed.Load()) })
	for _, q := range queues[:min(len(queues), maxHistories)] {
		if ctx.Err() != nil {
			return
		}
		if b.histories.idle(q) {
			continue
		}
		if p, err := b.point(ctx, q); err == nil {
			b.histories.add(q, now, p)
		}
	}
}

// idle reports whether a queue was empty at its last point, and was not used since.
func (h *histories) idle(q *queue) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.byQueue[q.queueKey]
	if known == nil || known.of != q || known.used != q.lastUsed.Load() {
		return false
	}
	last := &known.points[(known.next+len(known.points)-1)%len(known.points)]
	return last.ready+last.delayed+last.inFlight == 0
}

// point measures a queue.
func (b *Broker) point(ctx context.Context, q *queue) (p historyPoint, err error) {
	if q = b.queues.shard(q.queueKey).acquire(q.queueKey); q == nil {
		return p, driver.ErrNotFound
	}
	defer q.release(time.Duration(q.lastUsed.Load())) // measuring does not count as use
	usage, err := usageOf(ctx, q.handle)
	for _, shard := range usage.Shards {
		p.ready += fit(shard.Ready)
		p.delayed += fit(shard.Delayed)
		p.inFlight += fit(shard.InFlight)
		p.dead += fit(shard.Dead)
		p.oldest = max(p.oldest, fit(int(shard.OldestReady/time.Millisecond)))
	}
	return p, err
}

// fit returns n in 32 bits.
func fit(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// add adds a point to the history of a queue. A queue without room for one has none.
func (h *histories) add(q *queue, now time.Time, p historyPoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := q.flow.counts()
	known := h.byQueue[q.queueKey]
	switch {
	case known == nil:
		if !h.makeRoomLocked(q, now) {
			return
		}
		known = &queueHistory{of: q, counts: counts}
		h.byQueue[q.queueKey] = known
	case known.of != q: // it was closed and opened again
		known.of, known.counts = q, flowCounts{}
	}
	p.at = uint32(now.UnixNano() / int64(HistoryEvery))
	for i, field := range []*uint32{&p.sent, &p.delivered, &p.acked, &p.failed} {
		*field = fit(int(counts[i] - known.counts[i]))
	}
	known.counts, known.used = counts, q.lastUsed.Load()
	if n := len(known.points); n < historyPoints {
		if n == cap(known.points) { // append would make room for more than an hour
			known.points = append(make([]historyPoint, 0, min(2*n+8, historyPoints)), known.points...)
		}
		known.points = append(known.points, p)
		return
	}
	known.points[known.next] = p
	known.next = (known.next + 1) % historyPoints
}

// makeRoomLocked takes room for a history: that of queues that were not measured for an hour, or else
// of those of the tenant that were measured longest ago.
func (h *histories) makeRoomLocked(q *queue, now time.Time) bool {
	last := func(key queueKey) uint32 {
		known := h.byQueue[key]
		return known.points[(known.next+len(known.points)-1)%len(known.points)].at
	}
	present := uint32(now.UnixNano() / int64(HistoryEvery))
	var older []queueKey // of the tenant
	for key := range h.byQueue {
		switch at := last(key); {
		case at+historyPoints < present:
			h.removeLocked(key)
		case key.tenant == q.tenant && at < present:
			older = append(older, key)
		}
	}
	slices.SortFunc(older, func(x, y queueKey) int { return cmp.Compare(last(x), last(y)) })
	owner := share.Path{{Name: q.tenant}}
	for h.pool.Take(owner, 1) != nil {
		if len(older) == 0 {
			return false
		}
		h.removeLocked(older[0])
		older = older[1:]
	}
	return true
}

func (h *histories) removeLocked(key queueKey) {
	delete(h.byQueue, key)
	h.pool.Give(share.Path{{Name: key.tenant}}, 1)
}

// A HistoryTotal adds up the histories of queues. The zero value is ready for use.
type HistoryTotal struct {
	first  uint32 // the time of the first slot, in HistoryEvery
	points [historyPoints + 2]struct {
		Point
		known bool
	}
}

// AddHistory adds the last hour of a queue to a total, and its dead letters also while it was not measured. It is authorised like History.
func (c Caller) AddHistory(ctx context.Context, total *HistoryTotal, queue string) error {
	if _, err := c.authorize(ctx, capability.OpStats, queue); err != nil {
		return err
	}
	if total.first == 0 {
		total.first = uint32(time.Now().UnixNano()/int64(HistoryEvery)) - historyPoints
	}
	h := &c.broker.histories
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.byQueue[queueKey{c.tenant, queue}]
	if known == nil {
		return nil
	}
	for i := range known.points {
		p := &known.points[(known.next+i)%len(known.points)]
		if p.dead > 0 && p.ready+p.delayed+p.inFlight == 0 {
			end := uint32(time.Now().UnixNano()/int64(HistoryEvery)) + 1
			if i+1 < len(known.points) {
				end = known.points[(known.next+i+1)%len(known.points)].at
			}
			total.keepDead(p, end)
		}
		slot := p.at - total.first // one before the first is a large number
		if slot >= uint32(len(total.points)) {
			continue
		}
		sum := &total.points[slot]
		sum.known = true
		sum.Ready += int(p.ready)
		sum.Delayed += int(p.delayed)
		sum.InFlight += int(p.inFlight)
		sum.Dead += int(p.dead)
		sum.OldestReady = max(sum.OldestReady, time.Duration(p.oldest)*time.Millisecond)
		sum.Sent += int(p.sent)
		sum.Delivered += int(p.delivered)
		sum.Acked += int(p.acked)
		sum.Failed += int(p.failed)
	}
	return nil
}

// keepDead adds the dead letters of a point to the slots after it until end: a queue that has only dead letters and is not
// used is not measured. It makes no point where no queue was measured.
func (t *HistoryTotal) keepDead(p *historyPoint, end uint32) {
	for at := max(p.at+1, t.first); at < end && at-t.first < uint32(len(t.points)); at++ {
		t.points[at-t.first].Dead += int(p.dead)
	}
}

// Points returns the sums, oldest first.
func (t *HistoryTotal) Points() []Point {
	var points []Point
	for i := range t.points {
		if p := &t.points[i]; p.known {
			p.At = time.Unix(0, int64(t.first+uint32(i))*int64(HistoryEvery)).UTC()
			points = append(points, p.Point)
		}
	}
	return points
}

// History returns what a queue was like in the last hour, oldest first: a point for each HistoryEvery
// in which it was used or had messages, as far as this daemon has measured it. It needs a token for
// stats, and does no I/O. A queue that does not exist has no points.
func (c Caller) History(ctx context.Context, queue string) ([]Point, error) {
	if _, err := c.authorize(ctx, capability.OpStats, queue); err != nil {
		return nil, err
	}
	h := &c.broker.histories
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.byQueue[queueKey{c.tenant, queue}]
	if known == nil {
		return nil, nil
	}
	points := make([]Point, 0, len(known.points))
	for i := range known.points {
		p := &known.points[(known.next+i)%len(known.points)]
		points = append(points, Point{
			At: time.Unix(0, int64(p.at)*int64(HistoryEvery)).UTC(), Ready: int(p.ready), Delayed: int(p.delayed), InFlight: int(p.inFlight), Dead: int(p.dead),
			OldestReady: time.Duration(p.oldest) * time.Millisecond, Sent: int(p.sent), Delivered: int(p.delivered), Acked: int(p.acked), Failed: int(p.failed),
		})
	}
	return points, nil
}
