package redisbox

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// A shardWatcher watches one shard for this process, from the first receive on. It
// subscribes to the announcements of the scripts and sleeps until the next deadline.
// So a send in any process wakes waiting receivers, and leases, delays and retention
// end on time although no call comes in. Between announcements and deadlines it only
// refreshes every shard.FallbackInterval, in case an announcement was lost.
type shardWatcher struct {
	queue *queue
	shard *shard.Shard

	running         atomic.Bool
	announcements   *shard.Subscription
	lookNow         chan struct{} // holds one signal
	configChanged   chan struct{} // holds one signal
	earlierDeadline chan struct{} // holds one signal

	mu      sync.Mutex // guards the fields below
	due     float64    // the next deadline, on the shard's time axis
	cancel  context.CancelFunc
	alarm   *time.Timer // see setAlarm
	stopped bool        // permanently
}

func newShardWatcher(q *queue, s *shard.Shard) *shardWatcher {
	w := &shardWatcher{
		queue: q, shard: s, due: math.Inf(1),
		lookNow: make(chan struct{}, 1), configChanged: make(chan struct{}, 1), earlierDeadline: make(chan struct{}, 1),
	}
	w.announcements = shard.NewSubscription(q.Server, shard.Channel(q.Server.Prefix, q.Name, s.Number),
		w.onAnnouncement, func() { notify(w.lookNow) })
	return w
}

// start begins to watch.
func (w *shardWatcher) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.running.Store(true)
	w.queue.Server.Running.Start(func() { w.announcements.Run(ctx) })
	w.queue.Server.Running.Start(func() { w.run(ctx) })
}

// stop ends the watching. It does not wait.
func (w *shardWatcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running.Store(false)
	w.stopped = true
	if w.cancel != nil {
		w.cancel()
	}
	if w.alarm != nil {
		w.alarm.Stop()
	}
}

// notify puts a signal into a channel that holds one. It does not block.
func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// noteDeadline records that a lease, a delay or a retention period ends at due.
func (w *shardWatcher) noteDeadline(ctx context.Context, due float64) {
	if !w.running.Load() {
		w.setAlarm(ctx, due)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if due < w.due {
		w.due = due
		notify(w.earlierDeadline)
	}
}

// setAlarm sets a timer for an unwatched shard whose messages may be dead-lettered
// into another queue, where a receiver may wait for them. Other deadlines of an
// unwatched shard take effect in the next call, which is soon enough. Until it is due
// there is a timer and no goroutine.
func (w *shardWatcher) setAlarm(ctx context.Context, due float64) {
	q := w.queue
	if math.IsInf(due, 1) || q.Settings.Load().Config.DeadLetterTo == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if due >= w.due || w.stopped {
		return
	}
	w.due = due
	if w.alarm != nil {
		w.alarm.Stop()
	}
	ctx = context.WithoutCancel(ctx)
	w.alarm = time.AfterFunc(max(w.shard.Clock.Until(due), 0), func() {
		if !w.running.Load() {
			q.Server.Running.Start(func() { w.refresh(ctx) })
		}
	})
}

// nextDeadline returns the earliest deadline that is known.
func (w *shardWatcher) nextDeadline() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.due
}

// onAnnouncement acts on one announcement; see engine.announce in shard.lua. It does
// not block.
func (w *shardWatcher) onAnnouncement(ctx context.Context, message string) {
	q := w.queue
	word, number, _ := strings.Cut(message, " ")
	switch word {
	case "ready":
		n, _ := strconv.Atoi(number)
		q.Ready(w.shard, n)
	case "due":
		if due, err := strconv.ParseFloat(number, 64); err == nil {
			w.noteDeadline(ctx, due)
		}
	case "config":
		notify(w.configChanged)
	case "gone":
		q.end(driver.ErrNotFound)
	}
}

// run refreshes the shard at each deadline, and when an announcement may have been
// missed.
func (w *shardWatcher) run(ctx context.Context) {
	regular := time.NewTicker(shard.FallbackInterval)
	defer regular.Stop()
	timer := time.NewTimer(shard.FallbackInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			w.refresh(ctx)
		case <-regular.C:
			w.refresh(ctx)
		case <-w.lookNow:
			w.refresh(ctx)
		case <-w.configChanged:
			w.queue.reload(ctx, w.shard, -1)
		case <-w.earlierDeadline:
		}
		timer.Reset(max(w.shard.Clock.Until(w.nextDeadline()), 0))
	}
}

// refresh wakes a waiting receiver, whose call advances the shard, or runs the usage
// script for that.
func (w *shardWatcher) refresh(ctx context.Context) {
	q := w.queue
	w.mu.Lock()
	if w.shard.Clock.Until(w.due) <= 0 {
		w.due = math.Inf(1) // the answer of the call below has the next deadline
	}
	w.mu.Unlock()
	if q.waiters.Len() > 0 {
		q.Ready(w.shard, 1)
		return
	}
	if _, err := w.shard.Available(ctx, shard.Digit(w.running.Load())); err != nil && ctx.Err() == nil {
		q.Server.Logger.DebugContext(ctx, "cannot refresh a shard", "queue", q.Name, "shard", w.shard.Number, "error", err)
	}
}
