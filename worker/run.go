package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// A run is one call of Loop.Run. Its goroutines are:
//
//   - the fetcher, on the goroutine of Run, which receives messages while there
//     is room for them;
//   - the workers, which take messages and call the handler;
//   - the settler, which acks what handlers are done with, all there is at a time;
//   - the extender, which extends leases.
//
// They share the state below, under one mutex that nobody holds while waiting
// for the backend.
type run[T any] struct {
	loop  *Loop[T]
	began time.Time          // times are counted from here, with the monotonic clock
	stop  context.CancelFunc // ends the fetching
	abort chan struct{}      // closed by Loop.Abort

	capacity int  // how many messages may wait or be at a handler
	heldMax  int  // how many may be held, those that are being settled included
	refill   int  // how much room there must be to ask for more while nobody is idle
	strict   bool // messages of one group go one after the other

	workers sync.WaitGroup
	room    chan struct{} // tells the fetcher that there is room
	renew   chan struct{} // tells the extender that a lease is due before its timer

	mu      sync.Mutex // guards everything below
	waiting []*job[T]  // for a worker, in order
	busy    map[string]bool
	at      []*job[T] // what each worker has; nil for none
	numbers []int64   // of the goroutines of the workers
	running int
	held    int
	closing bool // workers take nothing any more
	last    bool // workers end when nothing waits

	toWork sync.Cond
	idle   int  // workers that wait
	waking bool // one of them was signalled and is not awake yet

	fetcherWaits bool
	receiving    bool // the backend is being asked
	asked        time.Duration

	acks     []*job[T]
	toSettle sync.Cond
	flushing bool // the settler ends when nothing is left

	leases   leases[T]
	renewed  sync.Cond // tells that an extension has ended
	timerSet bool
	timerAt  time.Duration
}

func newRun[T any](l *Loop[T], stop context.CancelFunc) *run[T] {
	o := &l.options
	capacity := o.Concurrency + o.Prefetch
	r := &run[T]{
		loop: l, began: time.Now(), stop: stop, abort: make(chan struct{}),
		capacity: capacity, heldMax: 2 * capacity, refill: max(1, o.Prefetch/2),
		strict: l.mailbox.Traits().StrictGroups,
		room:   make(chan struct{}, 1), renew: make(chan struct{}, 1),
		at: make([]*job[T], o.Concurrency), numbers: make([]int64, o.Concurrency),
		leases: newLeases[T](o.Visibility, !o.NoExtend),
	}
	r.toWork.L, r.toSettle.L, r.renewed.L = &r.mu, &r.mu, &r.mu
	if r.strict {
		r.busy = make(map[string]bool)
	}
	return r
}

// now is the time since the run began.
func (r *run[T]) now() time.Duration { return time.Since(r.began) }

// run is Loop.Run. Handlers and settling go on after ctx has ended; polling ends
// with it.
func (r *run[T]) run(ctx, polling context.Context) error {
	settling, crew := r.start(ctx)
	err := r.fetch(polling)
	return errors.Join(err, r.drain(settling, crew))
}

// once is Loop.RunOnce.
func (r *run[T]) once(ctx, polling context.Context) (int, error) {
	o := &r.loop.options
	messages, err := r.loop.mailbox.Receive(polling, mailbox.WithMax(r.capacity), mailbox.WithVisibility(o.Visibility))
	if len(messages) == 0 {
		return 0, err
	}
	settling, crew := r.start(ctx)
	r.add(messages)
	r.mu.Lock()
	r.last = true
	r.toWork.Broadcast()
	r.mu.Unlock()
	select {
	case <-crew.idle:
	case <-polling.Done():
	}
	return len(messages), r.drain(settling, crew)
}

// fetch receives messages until polling ends, whatever the backend says, unless
// that is hopeless.
func (r *run[T]) fetch(polling context.Context) error {
	o := &r.loop.options
	for failures := 0; ; {
		n := r.awaitRoom(polling)
		if n == 0 {
			return nil
		}
		messages, err := r.receive(polling, n)
		if len(messages) > 0 {
			r.add(messages)
		}
		switch {
		case err == nil:
			failures = 0
			continue
		case polling.Err() != nil:
			return nil
		case hopeless(err):
			return err
		}
		failures++
		r.loop.backendFailed(polling, "receive", err)
		if failures == 1 {
			o.Logger.LogAttrs(polling, slog.LevelWarn, "worker: cannot receive, trying again",
				slog.String("loop", o.Name), slog.Any("err", err))
		}
		backoff.Pause(polling, backoff.AfterError(failures, err))
	}
}

// hopeless reports whether no later receive can work: the mailbox was closed, its
// queue was deleted, or the backend was asked for the impossible.
func hopeless(err error) bool {
	return errors.Is(err, mailbox.ErrClosed) || errors.Is(err, mailbox.ErrNotFound) ||
		errors.Is(err, mailbox.ErrInvalid) || errors.Is(err, mailbox.ErrUnsupported)
}

// receive asks the backend once.
func (r *run[T]) receive(polling context.Context, n int) ([]*mailbox.Message[T], error) {
	o := &r.loop.options
	now := r.now()
	r.mu.Lock()
	r.receiving, r.asked = true, now
	r.mu.Unlock()
	messages, err := r.loop.mailbox.Receive(polling,
		mailbox.WithMax(n), mailbox.WithWait(o.Wait), mailbox.WithVisibility(o.Visibility))
	r.mu.Lock()
	r.receiving = false
	r.mu.Unlock()
	r.loop.setBeat(time.Now())
	r.loop.received(polling, len(messages))
	return messages, err
}

// awaitRoom blocks until messages should be asked for, and returns how many; 0
// when polling has ended.
func (r *run[T]) awaitRoom(polling context.Context) int {
	for polling.Err() == nil {
		r.mu.Lock()
		n := r.roomLocked()
		r.fetcherWaits = n == 0
		r.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-r.room:
		case <-polling.Done():
		}
	}
	return 0
}

// roomLocked is how many messages should be asked for now. While all workers have
// something to do, it is worth waiting until several can be asked for at once.
func (r *run[T]) roomLocked() int {
	room := min(r.capacity-len(r.waiting)-r.running, r.heldMax-r.held)
	starving := len(r.waiting) == 0 && r.running < len(r.at)
	if room < r.refill && !starving {
		return 0
	}
	return max(0, room)
}

// callFetcherLocked tells the fetcher that there is room, if it waits for some.
func (r *run[T]) callFetcherLocked() {
	if r.fetcherWaits && r.roomLocked() > 0 {
		r.fetcherWaits = false
		select {
		case r.room <- struct{}{}:
		default:
		}
	}
}

// add makes jobs of messages and sees that somebody takes them.
func (r *run[T]) add(messages []*mailbox.Message[T]) {
	now := r.now()
	// Not one block for all of them: a handler that leaks its context would keep
	// the bodies of all.
	jobs := make([]*job[T], len(messages))
	for i, message := range messages {
		jobs[i] = &job[T]{message: message, run: r}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range jobs {
		r.leases.add(j, now)
	}
	if len(r.waiting) == 0 {
		r.waiting = jobs
	} else {
		r.waiting = append(r.waiting, jobs...)
	}
	r.held += len(jobs)
	r.callExtenderLocked()
	r.callWorkerLocked()
}

// callWorkerLocked wakes a worker if there is something to do. One at a time: a
// worker that finds more than it takes wakes the next. So quick work is done by
// few workers, and the others are not woken for nothing.
func (r *run[T]) callWorkerLocked() {
	if len(r.waiting) > 0 && r.idle > 0 && !r.waking {
		r.waking = true
		r.toWork.Signal()
	}
}

// next takes over a job that a worker is done with, and returns the next one for
// it. It blocks until there is one, and returns nil when there will be none.
func (r *run[T]) next(slot int, done *job[T]) *job[T] {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if done != nil {
		r.doneLocked(slot, done)
	}
	for !r.closing {
		if j := r.takeLocked(); j != nil {
			j.phase, j.since = jobRunning, now
			r.at[slot] = j
			r.running++
			r.callWorkerLocked()
			r.callFetcherLocked()
			return j
		}
		if r.last && len(r.waiting) == 0 {
			return nil
		}
		r.callFetcherLocked()
		r.idle++
		r.toWork.Wait()
		r.idle--
		r.waking = false
		now = r.now()
	}
	return nil
}

// takeLocked returns the first message that may be handled now.
func (r *run[T]) takeLocked() *job[T] {
	for i, j := range r.waiting {
		if r.strict {
			if r.busy[j.message.Group] {
				continue
			}
			r.busy[j.message.Group] = true
		}
		if i == 0 {
			r.waiting[0] = nil
			r.waiting = r.waiting[1:]
		} else {
			r.waiting = slices.Delete(r.waiting, i, i+1)
		}
		return j
	}
	return nil
}

// doneLocked takes a job from its worker. One whose handler succeeded goes to the
// settler; any other is settled.
func (r *run[T]) doneLocked(slot int, j *job[T]) {
	r.at[slot] = nil
	r.running--
	if r.strict {
		delete(r.busy, j.message.Group)
	}
	if r.last {
		r.toWork.Broadcast() // a group may be free, or all be done
	}
	switch {
	case j.phase == jobSettled:
		if j.lost && j.succeeded && !j.message.Settled() {
			// It is not to be done again if it comes back here.
			r.loop.completed.put(j.message.ID, struct{}{})
		}
		return
	case j.cut && !j.succeeded: // it is being given back
		return
	}
	j.phase = jobSettling
	r.acks = append(r.acks, j)
	if len(r.acks) == 1 {
		r.toSettle.Signal()
	}
}

// settledLocked ends the stay of a job.
func (r *run[T]) settledLocked(j *job[T]) {
	if j.phase == jobSettled {
		return
	}
	j.phase = jobSettled
	r.leases.remove(j)
	j.lease.released = true
	r.held--
	r.callFetcherLocked()
}
