package redisbox

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A lane carries operations to a shard. Those that come while a call is under way
// go together in the next: so one caller waits for one round trip, and many share
// the cost of a call. Nobody ever waits for others to come.
//
// A lane has no goroutine while there is nothing to carry.
type lane struct {
	crew *crew
	// carry makes the call for a batch and tells each operation how it went.
	carry func(ctx context.Context, sess *session, batch []cargo)

	mu      sync.Mutex // guards the fields below
	queued  []cargo
	weight  int // how many elements are queued
	flights int
	latest  time.Time // when the latest flight has set out
	idle    []*session
}

// cargo is an operation that travels in a lane: a *settling, a *sending or a
// *receiving.
type cargo interface {
	// weight is how many elements it has, and how many bytes.
	weight() (elements, bytes int)
	context() context.Context
}

// What travels together, and how much at a time.
const (
	maxElements = 1024
	maxBytes    = 4 << 20
	// More than one call at a time is under way only if there is enough for another,
	// or if a call takes long, because it is large or the server far away. Small
	// calls would cost more than they gain.
	maxFlights = 4
	enough     = 64
	longFlight = time.Millisecond
)

// submit puts an operation on its way. It does not block, and cancelling ctx does
// not stop what is on its way.
func (l *lane) submit(ctx context.Context, op cargo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	elements, _ := op.weight()
	l.queued, l.weight = append(l.queued, op), l.weight+elements
	if l.flights > 0 && (l.flights == maxFlights || (l.weight < enough && time.Since(l.latest) < longFlight)) {
		return
	}
	l.flights++
	l.latest = time.Now()
	sess := &session{}
	if last := len(l.idle) - 1; last >= 0 {
		sess = l.idle[last]
		l.idle = l.idle[:last]
	}
	ctx = context.WithoutCancel(ctx)
	l.crew.start(func() { l.fly(ctx, sess) })
}

// withdraw takes back an operation that is not on its way yet.
func (l *lane) withdraw(op cargo) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.queued {
		if other == op {
			elements, _ := op.weight()
			l.queued, l.weight = append(l.queued[:i:i], l.queued[i+1:]...), l.weight-elements
			return true
		}
	}
	return false
}

// fly carries operations until none is queued.
func (l *lane) fly(ctx context.Context, sess *session) {
	for batch := l.load(sess); batch != nil; batch = l.load(sess) {
		l.carry(ctx, sess, batch)
		l.gather()
	}
}

// gather lets those who were just answered come with what they want next, for as
// long as some do. It only lets others run; it does not wait.
func (l *lane) gather() {
	const rounds = 8
	for before, n := -1, 0; before < n; {
		before = n
		for range rounds {
			runtime.Gosched()
		}
		l.mu.Lock()
		n = len(l.queued)
		l.mu.Unlock()
	}
}

// load returns the next batch, or nil if this flight is over.
func (l *lane) load(sess *session) []cargo {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queued) == 0 {
		l.flights--
		l.idle = append(l.idle, sess)
		return nil
	}
	elements, bytes, n := 0, 0, 0
	for _, op := range l.queued {
		e, b := op.weight()
		if n > 0 && (elements+e > maxElements || bytes+b > maxBytes) {
			break
		}
		elements, bytes, n = elements+e, bytes+b, n+1
	}
	batch := l.queued[:n:n]
	l.queued, l.weight = l.queued[n:], l.weight-elements
	if len(l.queued) == 0 {
		l.queued = nil
	}
	l.latest = time.Now()
	return batch
}

// nobodyWaits reports whether the callers of all operations have gone.
func nobodyWaits(batch []cargo) bool {
	for _, op := range batch {
		if op.context().Err() == nil {
			return false
		}
	}
	return true
}
