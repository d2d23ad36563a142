package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

// A run is one call of Loop.Run. Its goroutines are:
//
//   - the fetcher, on the goroutine of Run, which receives messages while there
//     is room for them;
//   - the workers, which take messages and call the handler; one that is alone
//     receives in the place of the fetcher, and acks in that of the settler;
//   - the settler, which acks what handlers are done with, all there is at a time;
//   - the extender, which extends leases.
//
// They share the state below, under one mutex that nobody holds while waiting
// for the backend.
type run[T any] struct {
	loop  *Loop[T]
	began time.Time          // times are counted from here, with the monotonic clock
	stop  context.CancelFunc // ends polling
	abort chan struct{}      // closed by Loop.Abort

	capacity int  // how many messages may wait or be at a handler
	heldMax  int  // how many may be held, those that are being settled included
	refill   int  // how much room there must be to ask for more while nobody is idle
	strict   bool // messages of one group go one after the other

	workers sync.WaitGroup
	polling context.Context // ends the fetching
	room    chan struct{}   // tells the fetcher that there is room
	renew   chan struct{}   // tells the extender that a lease is due before its timer

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
	fetchingOwn  bool          // a worker receives, in the place of the fetcher
	ownErr       error         // what it failed with, for the fetcher to deal with
	ownEnded     sync.Cond     // tells that it has ended
	receiving    bool          // the backend is being asked
	asked        time.Duration // when
	answered     time.Duration // when it last did

	quick    bool // the last ack was; see ackAlone
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
	r.ownEnded.L = &r.mu
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
	settling, crew := r.start(ctx, polling)
	err := r.fetch()
	return errors.Join(err, r.drain(settling, crew))
}

// once is Loop.RunOnce, with a receive that waits.
func (r *run[T]) once(ctx, polling context.Context, wait time.Duration) (int, error) {
	r.polling = polling
	messages, err := r.receive(r.capacity, wait)
	if len(messages) == 0 {
		if wait > 0 && polling.Err() != nil {
			err = nil // it was told to stop while it waited
		}
		return 0, err
	}
	settling, crew := r.start(ctx, polling)
	jobs, now := r.jobsOf(messages, nil), r.now()
	r.mu.Lock()
	r.addLocked(jobs, now)
	r.last = true
	r.toWork.Broadcast()
	r.mu.Unlock()
	select {
	case <-crew.idle:
	case <-polling.Done():
	}
	return len(messages), r.drain(settling, crew)
}

// jobsOf makes jobs of messages. It may use the memory of spare.
func (r *run[T]) jobsOf(messages []*mailbox.Message[T], spare []*job[T]) []*job[T] {
	jobs := spare[:0]
	for _, message := range messages {
		// Not one block for all of them: a handler that leaks its context would
		// keep the bodies of all.
		jobs = append(jobs, &job[T]{message: message, run: r, id: message.ID, group: message.Group})
	}
	return jobs
}

// addLocked takes over jobs whose messages came at now, for workers to take.
func (r *run[T]) addLocked(jobs []*job[T], now time.Duration) {
	for _, j := range jobs {
		r.leases.add(j, now)
	}
	r.waiting = append(r.waiting, jobs...)
	r.held += len(jobs)
	r.callExtenderLocked()
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
// it, whose context is to be a child of parent. It blocks until there is one, and
// returns nil when there will be none.
func (r *run[T]) next(parent context.Context, slot int, done *job[T]) *job[T] {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if done != nil {
		r.quick = r.quick && now-done.since < ackQuick
		r.doneLocked(slot, done)
	}
	for !r.closing {
		if j := r.takeLocked(); j != nil {
			j.phase, j.since, j.parent = jobRunning, now, parent
			r.at[slot] = j
			r.running++
			j.alone = r.quick && r.running == 1 && len(r.waiting) == 0
			r.callWorkerLocked()
			r.callFetcherLocked()
			return j
		}
		if r.last && len(r.waiting) == 0 {
			return nil
		}
		if r.mayFetchLocked() {
			now = r.fetchOwnLocked(now)
			continue
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
			if r.busy[j.group] {
				continue
			}
			r.busy[j.group] = true
		}
		if i == 0 && len(r.waiting) > 1 {
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
	if j.acked {
		r.settledLocked(j) // before there is room that the fetcher would be called for
	}
	r.at[slot] = nil
	r.running--
	if r.strict {
		delete(r.busy, j.group)
	}
	if r.last {
		r.toWork.Broadcast() // a group may be free, or all be done
	}
	switch {
	case j.phase == jobSettled:
		if j.lost && j.succeeded && !j.message.Settled() {
			// It is not to be done again if it comes back here.
			r.loop.completed.put(j.id, struct{}{})
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
