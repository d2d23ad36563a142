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
//   - the workers, which take messages, one by one or in batches, and call the
//     handler; a worker that is alone also receives and acks, instead of the
//     fetcher and the settler;
//   - the settler, which acks handled messages in batches;
//   - the extender, which extends leases.
//
// They share the state below, under one mutex that no goroutine holds during a
// backend call.
type run[T any] struct {
	loop  *Loop[T]
	began time.Time          // times are counted from here, with the monotonic clock
	stop  context.CancelFunc // ends polling
	abort chan struct{}      // closed by Loop.Abort

	capacity int  // max messages that wait or are at a handler
	heldMax  int  // max messages held, including those being settled
	refill   int  // min room for a receive while no worker is idle
	strict   bool // messages of one group are handled one after the other

	workers sync.WaitGroup
	polling context.Context // ends fetching
	room    chan struct{}   // tells the fetcher that there is room
	renew   chan struct{}   // tells the extender that a lease is due before its timer

	mu      sync.Mutex // guards everything below
	waiting []*job[T]  // for a worker, in order
	busy    map[string]bool
	at      []*job[T] // the job of each worker, or the jobs of its batch; nil for none
	numbers []int64   // of the goroutines that have them
	running int
	held    int
	// batching is how many workers have a batch.
	batching int
	closing  bool // workers take no more jobs
	last     bool // workers end when nothing waits

	toWork sync.Cond
	idle   int         // workers that wait
	waking bool        // one of them was signalled and is not awake yet
	fill   *time.Timer // ends the wait for a full batch; nil while none waits

	fetcherWaits bool
	fetchingOwn  bool          // a worker receives instead of the fetcher
	ownErr       error         // the error of that receive, for the fetcher
	ownEnded     sync.Cond     // signals that it has ended
	receiving    bool          // a receive is under way
	asked        time.Duration // when it began
	answered     time.Duration // when the last one ended

	quick    bool // the last ack was quick; see ackAlone
	acks     []*job[T]
	toSettle sync.Cond
	flushing bool // the settler ends when nothing is left

	leases   leases[T]
	renewed  sync.Cond // signals that an extension has ended
	timerSet bool
	timerAt  time.Duration
}

func newRun[T any](l *Loop[T], stop context.CancelFunc) *run[T] {
	o := &l.options
	slots := o.Concurrency
	if l.batches != nil {
		slots *= l.batches.size
	}
	capacity := slots + o.Prefetch
	r := &run[T]{
		loop: l, began: time.Now(), stop: stop, abort: make(chan struct{}),
		capacity: capacity, heldMax: 2 * capacity, refill: max(1, o.Prefetch/2),
		strict: l.mailbox.Traits().StrictGroups,
		room:   make(chan struct{}, 1), renew: make(chan struct{}, 1),
		at: make([]*job[T], slots), numbers: make([]int64, slots),
		leases: newLeases[T](o.Visibility, !o.NoExtend),
	}
	r.toWork.L, r.toSettle.L, r.renewed.L = &r.mu, &r.mu, &r.mu
	r.ownEnded.L = &r.mu
	if r.strict {
		r.busy = make(map[string]bool)
	}
	return r
}

// now returns the time since the run began.
func (r *run[T]) now() time.Duration { return time.Since(r.began) }

// run runs Loop.Run. Handlers and settling continue after ctx has ended; polling
// does not.
func (r *run[T]) run(ctx, polling context.Context) error {
	settling, team := r.start(ctx, polling)
	err := r.fetch()
	return errors.Join(err, r.drain(settling, team))
}

// once runs Loop.RunOnce with a receive that waits.
func (r *run[T]) once(ctx, polling context.Context, wait time.Duration) (int, error) {
	r.polling = polling
	messages, err := r.receive(r.capacity, wait)
	if len(messages) == 0 {
		if wait > 0 && polling.Err() != nil {
			err = nil // told to stop while waiting
		}
		return 0, err
	}
	settling, team := r.start(ctx, polling)
	jobs, now := r.jobsOf(messages, nil), r.now()
	r.mu.Lock()
	r.addLocked(jobs, now)
	r.last = true
	r.toWork.Broadcast()
	r.mu.Unlock()
	select {
	case <-team.idle:
	case <-polling.Done():
	}
	return len(messages), r.drain(settling, team)
}

// jobsOf makes jobs of messages. It may use the memory of spare.
func (r *run[T]) jobsOf(messages []*mailbox.Message[T], spare []*job[T]) []*job[T] {
	jobs := spare[:0]
	for _, message := range messages {
		// Allocated one by one: a handler that leaks its context would otherwise
		// keep the bodies of all messages of the batch.
		jobs = append(jobs, &job[T]{message: message, run: r, id: message.ID, group: message.Group})
	}
	return jobs
}

// addLocked adds jobs whose messages were received at now.
func (r *run[T]) addLocked(jobs []*job[T], now time.Duration) {
	for _, j := range jobs {
		j.since = now
		r.leases.add(j, now)
	}
	r.waiting = append(r.waiting, jobs...)
	r.held += len(jobs)
	r.callExtenderLocked()
}

// callWorkerLocked wakes a worker if a job waits. It wakes one at a time, and a
// worker that leaves jobs behind wakes the next, so quick work is done by few
// workers and the others sleep.
func (r *run[T]) callWorkerLocked() {
	if len(r.waiting) > 0 && r.idle > 0 && !r.waking {
		r.waking = true
		r.toWork.Signal()
	}
}

// next takes back the job that a worker has finished and returns its next one,
// whose context is a child of parent. It blocks until there is one, and returns
// nil when there will be none.
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

// takeLocked removes and returns the first job that may be handled now.
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

// doneLocked takes a job from its worker and passes it to the settler if its
// handler succeeded; any other is settled already.
func (r *run[T]) doneLocked(slot int, j *job[T]) {
	if j.acked {
		r.settledLocked(j) // first, so that the fetcher is not woken twice
	}
	r.at[slot] = nil
	r.running--
	if r.strict {
		delete(r.busy, j.group)
	}
	if r.last {
		r.toWork.Broadcast() // a group may be free, or all jobs done
	}
	switch {
	case j.phase == jobSettled:
		if j.lost && j.succeeded && !j.message.Settled() {
			// Its handler must not run again if it comes back here.
			r.loop.completed.put(j.id, struct{}{})
		}
		return
	case j.cut && !j.succeeded: // it is being released
		return
	}
	j.phase = jobSettling
	r.acks = append(r.acks, j)
	if len(r.acks) == 1 {
		r.toSettle.Signal()
	}
}

// settledLocked removes a job from the run.
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
