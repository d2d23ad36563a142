package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// DefaultWatchEvery is how often a watch tells changes at most, unless it says otherwise, and
	// MinWatchEvery and MaxWatchEvery are the bounds of that.
	DefaultWatchEvery = time.Second
	MinWatchEvery     = 100 * time.Millisecond
	MaxWatchEvery     = time.Minute
	// MaxWatchedQueues is how many queues a watch has at most.
	MaxWatchedQueues = 256
	// WatchHeartbeat is how long a watch is silent at most.
	WatchHeartbeat = 15 * time.Second
	// watchCheck is how long a watch goes on at most with a token that was not verified again. It is
	// shorter than the shortest time for which a verified token is remembered.
	watchCheck = 2 * time.Second
	// maxWatches bounds the queues of all watches, each counted once for each watch: a queue that only
	// one watch has takes about a kilobyte.
	maxWatches = 32 << 10
	// retryWatches is the RetryAfter when a share of watches is used up.
	retryWatches = 10 * time.Second
	// collectBudget bounds the time for measuring one queue.
	collectBudget = 2 * time.Second
	// collectRest times the duration of a round is the least pause after it, so that measuring takes
	// a fifth of one processor at most, however many queues are watched.
	collectRest = 4
	// relistEvery is how often the queues under prefixes are looked up.
	relistEvery = 5 * time.Second
)

// A WatchRequest says which queues to watch.
type WatchRequest struct {
	// Queues are names, prefixes and the wildcard, as tokens write them; see capability.ParsePattern.
	Queues []string
	// Every is how often changes are told at most; 0 means DefaultWatchEvery.
	Every time.Duration
}

// A WatchEvent is what has changed.
type WatchEvent struct {
	At time.Time
	// Queues are those that have changed, in order; none in a heartbeat.
	Queues []WatchedQueue
	// LeftOut is how many queues match and are beyond MaxWatchedQueues.
	LeftOut int
}

// A WatchedQueue is a queue, or why there are no figures of it: ErrNotFound if it was deleted.
type WatchedQueue struct {
	Name string
	Figures
	Err error
}

// A Watch tells what queues are like, and what changes. One goroutine uses it.
type Watch struct {
	caller Caller
	every  time.Duration
	names  []string           // of single queues
	wide   []macaroon.Pattern // prefixes and the wildcard
	owner  share.Path
	units  int64
	wake   chan struct{} // has an element when something may have changed

	// The fields below are guarded by the lock of the sources.
	members []*source // in order; replaced, not changed
	leftOut int
	version uint64 // of the census that members are of

	// The fields below are those of the goroutine that calls Next.
	sent    map[string]*measurement
	toldOut int           // leftOut as it was told
	changed bool          // something may have changed
	told    time.Duration // on the broker's clock, when the last changes were told; 0: never
	heard   time.Duration // when the last event was
}

// A watchTable has the watches, and the goroutine that measures their queues while there are any.
type watchTable struct {
	pool    *share.Pool
	count   atomic.Int64
	running sync.WaitGroup
	kick    chan struct{} // has an element when a source may be due earlier
	ended   chan struct{} // closed when the daemon drains
	once    sync.Once     // for ended

	// The fields below are guarded by the lock of the sources.
	all  map[*Watch]struct{}
	stop context.CancelFunc // of the goroutine; nil while there is none
}

func (t *watchTable) init() {
	t.pool = share.New("watched queues", "max_watched", maxWatches, retryWatches)
	t.all = make(map[*Watch]struct{})
	t.kick, t.ended = make(chan struct{}, 1), make(chan struct{})
}

// endAll ends all watches: the broker refuses what they do.
func (t *watchTable) endAll() { t.once.Do(func() { close(t.ended) }) }

// Watch begins to watch queues. It needs a token for stats on each of them, on all queues under a
// prefix, and on all queues for the wildcard. It measures the queues before it returns, and blocks on
// the backend for that. The caller calls Close. Codes: ErrInvalid, ErrNotFound (a queue that is named),
// ErrFull (the share of watched queues), ErrUnsupported (the backend does not list queues), ErrUnavailable.
func (c Caller) Watch(ctx context.Context, r WatchRequest) (*Watch, error) {
	b := c.broker
	w := &Watch{caller: c, every: cmp.Or(r.Every, DefaultWatchEvery), wake: make(chan struct{}, 1), sent: make(map[string]*measurement)}
	if w.every < MinWatchEvery || w.every > MaxWatchEvery {
		return nil, watchError("every_ms", fmt.Sprintf("%v is out of range; want %v to %v", w.every, MinWatchEvery, MaxWatchEvery))
	}
	if err := w.parse(r.Queues); err != nil {
		return nil, err
	}
	if err := w.allowed(ctx, len(w.names)+len(w.wide)); err != nil {
		return nil, err
	}
	if len(w.wide) > 0 {
		if b.admin == nil {
			return nil, &driver.Error{Code: driver.ErrUnsupported, Op: "watch", Detail: "backend does not list queues; name each queue"}
		}
		if err := b.count(ctx, 0); err != nil {
			return nil, err
		}
	}
	owner := c.owner()
	w.owner = owner[:]
	if w.units = int64(len(w.names)); len(w.wide) > 0 {
		w.units = MaxWatchedQueues
	}
	if err := b.watches.pool.Take(w.owner, w.units); err != nil {
		b.metrics.Rejected(metricSaturated)
		return nil, refusedShare(err, "watch", "")
	}
	b.beginWatch(ctx, w)
	if err := w.measure(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func watchError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "watch", Field: field, Detail: detail}
}

// parse reads the patterns of a request.
func (w *Watch) parse(patterns []string) error {
	if len(patterns) == 0 || len(patterns) > MaxWatchedQueues {
		return watchError("queue", fmt.Sprintf("%d queues are named; want 1 to %d", len(patterns), MaxWatchedQueues))
	}
	for _, text := range patterns {
		p, ok := macaroon.ParsePattern(text)
		switch {
		case !ok:
			return watchError("queue", fmt.Sprintf(`%.100q is not a queue; want a name, a prefix that ends in one of ":/." and "*", or "*"`, text))
		case p.Kind != macaroon.MatchExact:
			w.wide = append(w.wide, p)
		case !slices.Contains(w.names, p.Text):
			w.names = append(w.names, p.Text)
		}
	}
	return nil
}

// allowed authorises the first of what is watched, names before prefixes. All are authorised at the
// beginning; later only the validity of the token can change.
func (w *Watch) allowed(ctx context.Context, first int) error {
	c := &w.caller
	for _, name := range w.names[:min(first, len(w.names))] {
		if _, err := c.authorize(ctx, capability.OpStats, name); err != nil {
			return err
		}
	}
	for _, p := range w.wide[:max(0, first-len(w.names))] {
		request := c.request(capability.OpStats, p.Text)
		request.Under = p.Kind == macaroon.MatchPrefix
		if _, err := c.authorizeRequest(ctx, request); err != nil {
			return err
		}
	}
	return c.broker.admit("watch", "", lastForReads)
}

// matches reports whether a watch has a queue.
func (w *Watch) matches(queue string) bool {
	return slices.Contains(w.names, queue) || slices.ContainsFunc(w.wide, func(p macaroon.Pattern) bool { return p.Matches(queue) })
}

// measure measures the queues of a new watch.
func (w *Watch) measure(ctx context.Context) error {
	for _, s := range w.members {
		m, err := w.caller.lookInTurn(ctx, s, w.every)
		if err != nil {
			return err
		}
		if m.err != nil && (len(w.wide) == 0 || codeOf(m.err) != driver.ErrNotFound) {
			return m.err
		}
	}
	return nil
}

// Next waits for the next event: at first all queues at once, then what has changed, and a heartbeat
// after WatchHeartbeat without a change. Changes between two calls are told once, as they are then, so
// a slow reader costs no memory. Codes besides those of authorisation: ErrUnavailable (the daemon
// drains), and the error of ctx. An error ends the watch.
func (w *Watch) Next(ctx context.Context) (WatchEvent, error) {
	b := w.caller.broker
	for {
		if err := w.allowed(ctx, 1); err != nil {
			return WatchEvent{}, err
		}
		now, wait := b.now(), watchCheck
		if w.told == 0 || w.changed && now-w.told >= w.every {
			first := w.told == 0
			if e := w.changes(); first || len(e.Queues) > 0 || e.LeftOut != w.toldOut {
				w.told, w.heard, w.toldOut = max(now, 1), now, e.LeftOut
				return e, nil
			}
		}
		if now-w.heard >= WatchHeartbeat {
			w.heard = now
			return WatchEvent{At: time.Now().UTC(), LeftOut: w.toldOut}, nil
		}
		if w.changed {
			wait = min(wait, w.told+w.every-now)
		}
		timer := time.NewTimer(min(wait, w.heard+WatchHeartbeat-now))
		wake := w.wake
		if w.changed {
			wake = nil // the event has to wait, and takes further changes along
		}
		select {
		case <-wake:
			w.changed = true
		case <-b.watches.ended:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return WatchEvent{}, ctx.Err()
		}
		timer.Stop()
	}
}

// changes returns what has changed since it was told.
func (w *Watch) changes() WatchEvent {
	w.changed = false
	select {
	case <-w.wake: // what it announced is told now
	default:
	}
	t := &w.caller.broker.sources
	t.mu.Lock()
	members := w.members
	e := WatchEvent{At: time.Now().UTC(), LeftOut: w.leftOut}
	t.mu.Unlock()
	present := make(map[string]struct{}, len(members))
	for _, s := range members {
		present[s.key.name] = struct{}{}
		m, before := s.latest.Load(), w.sent[s.key.name]
		if m == nil || before == m || !m.differs(before) || before == nil && codeOf(m.err) == driver.ErrNotFound {
			continue
		}
		w.sent[s.key.name] = m
		e.Queues = append(e.Queues, WatchedQueue{s.key.name, m.Figures, m.err})
	}
	for name, before := range w.sent {
		if _, ok := present[name]; ok {
			continue
		}
		delete(w.sent, name)
		if before.err == nil {
			gone := &driver.Error{Code: driver.ErrNotFound, Op: "watch", Queue: name, Detail: "queue was deleted, or others match before it"}
			e.Queues = append(e.Queues, WatchedQueue{Name: name, Err: gone})
		}
	}
	slices.SortFunc(e.Queues, func(x, y WatchedQueue) int { return strings.Compare(x.Name, y.Name) })
	return e
}

// Every returns how often the watch tells changes at most.
func (w *Watch) Every() time.Duration { return w.every }

// Close ends a watch.
func (w *Watch) Close() {
	b := w.caller.broker
	t := &b.sources
	t.mu.Lock()
	delete(b.watches.all, w)
	t.setMembersLocked(w, nil, b.now())
	if len(b.watches.all) == 0 && b.watches.stop != nil {
		b.watches.stop()
		b.watches.stop = nil
	}
	t.mu.Unlock()
	b.watches.pool.Give(w.owner, w.units)
	b.metrics.Watches.Set(float64(b.watches.count.Add(-1)))
}
