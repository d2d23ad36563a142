package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

const (
	// settleTimeout bounds how long a run settles messages at its end.
	settleTimeout = 5 * time.Second
	// cancelGrace is how long cancelled handlers have to return.
	cancelGrace = time.Second
)

// A team is the goroutines of a run, and how to end them.
type team struct {
	idle     chan struct{}           // closed when all workers have ended
	cut      context.CancelCauseFunc // cancels the handlers
	stop     context.CancelFunc      // cancels everything
	settler  sync.WaitGroup
	extender sync.WaitGroup
}

// start starts the workers, the settler and the extender. The context that it
// returns has the values of ctx but does not end with it: work continues while the
// run drains.
func (r *run[T]) start(ctx, polling context.Context) (settling context.Context, t *team) {
	r.polling = polling
	t = &team{idle: make(chan struct{})}
	settling, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	working, cut := context.WithCancelCause(settling)
	t.cut = cut
	if batches := r.loop.batches; batches != nil {
		for slot := 0; slot < len(r.at); slot += batches.size {
			r.workers.Go(func() { r.workBatches(working, settling, slot) })
		}
	} else {
		for slot := range r.at {
			r.workers.Go(func() { r.work(working, settling, slot) })
		}
	}
	go func() {
		r.workers.Wait()
		close(t.idle)
	}()
	t.settler.Go(func() { r.settleAcks(settling) })
	t.extender.Go(func() { r.extendLeases(settling) })
	return settling, t
}

// drain ends a run. It releases at once the messages that no handler has started.
// Handlers may continue for the drain time; then they are cancelled, and their
// messages are released without waiting for them to return.
func (r *run[T]) drain(settling context.Context, t *team) error {
	timeout := time.NewTimer(max(0, r.loop.options.Drain))
	defer timeout.Stop()
	// In the background: a hanging backend must not make the drain longer.
	var releasing sync.WaitGroup
	waiting := r.close()
	releasing.Go(func() { r.release(settling, waiting) })
	left := 0
	if !r.awaitWorkers(t, timeout) {
		jobs := r.cutShort()
		t.cut(&mailbox.Error{Code: ErrShutdown, Op: "handle", Queue: r.loop.mailbox.Name()})
		r.giveBack(settling, jobs)
		left = r.awaitReturn(settling, t)
	}
	releasing.Wait()
	// Only acks are left.
	last := time.AfterFunc(settleTimeout, t.stop)
	defer last.Stop()
	r.mu.Lock()
	r.flushing = true
	r.toSettle.Broadcast()
	r.mu.Unlock()
	t.settler.Wait()
	t.cut(nil)
	t.stop()
	t.extender.Wait()
	if left > 0 {
		return &mailbox.Error{
			Code: ErrStuck, Op: opRun, Queue: r.loop.options.Name,
			Detail: fmt.Sprintf("%d handlers did not return after their context was cancelled", left),
		}
	}
	return nil
}

// close stops workers from taking more jobs and returns the jobs that wait.
func (r *run[T]) close() []*job[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	r.stopFillLocked()
	r.toWork.Broadcast()
	waiting := r.waiting
	r.waiting = nil
	return waiting
}

// awaitWorkers waits for the workers to end until the timeout or Abort, and reports
// whether they have.
func (r *run[T]) awaitWorkers(t *team, timeout *time.Timer) bool {
	select {
	case <-t.idle:
		return true
	case <-timeout.C:
	case <-r.abort:
	}
	return false
}

// cutShort marks and returns the jobs at a handler. An error that their handlers
// return from now on does not count as a failure of the message.
func (r *run[T]) cutShort() []*job[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	var jobs []*job[T]
	for _, j := range r.at {
		if j != nil && j.phase == jobRunning {
			j.cut = true
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// giveBack releases the messages of cancelled handlers, except those that succeeded at
// the last moment. They are ready again at once, because nothing is wrong with
// them. A queue that counts every delivery gets a nack, whose text says that the
// delivery does not count for the limit of a policy.
func (r *run[T]) giveBack(settling context.Context, jobs []*job[T]) {
	r.mu.Lock()
	jobs = slices.DeleteFunc(jobs, func(j *job[T]) bool {
		if j.phase != jobRunning {
			return true
		}
		r.settledLocked(j)
		return false
	})
	r.mu.Unlock()
	if len(jobs) == 0 {
		return
	}
	r.loop.options.Logger.LogAttrs(settling, slog.LevelWarn, "worker: handlers cancelled at the end of the drain time, their messages are released",
		slog.String("loop", r.loop.options.Name), slog.Int("messages", len(jobs)))
	if r.loop.mailbox.Traits().Release {
		r.release(settling, jobs)
		return
	}
	byDeliveries := make(map[int][]*job[T])
	for _, j := range jobs {
		byDeliveries[j.message.Deliveries] = append(byDeliveries[j.message.Deliveries], j)
	}
	for deliveries, alike := range byDeliveries {
		cause := &putBack{deliveries, ErrShutdown}
		r.returnAll(settling, alike, ResultNacked, func(ctx context.Context, messages []*mailbox.Message[T]) error {
			return mailbox.NackAll(ctx, 0, cause, messages...)
		})
	}
}

// awaitReturn waits a short time for cancelled handlers to return and for workers
// that settle, and returns how many handlers have not returned.
func (r *run[T]) awaitReturn(settling context.Context, t *team) int {
	last := time.AfterFunc(settleTimeout, t.stop)
	defer last.Stop()
	if within(cancelGrace, t.idle) {
		return 0
	}
	stuck, busy := r.countLeft()
	if busy > 0 {
		select {
		case <-t.idle:
		case <-settling.Done(): // their calls end now
			within(cancelGrace, t.idle)
		}
		stuck, _ = r.countLeft()
	}
	return stuck
}

// within waits for done, up to d, and reports whether it was closed.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// countLeft counts the workers whose cancelled handler has not returned, and those
// that settle.
func (r *run[T]) countLeft() (stuck, busy int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var counted *batchCall[T]
	for _, j := range r.at {
		if j == nil || j.batch != nil && j.batch == counted {
			continue
		}
		counted = j.batch
		switch {
		case j.cut || j.lost:
			stuck++
		default:
			busy++
		}
	}
	return stuck, busy
}
