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
	// settleWithin bounds how long the end of a run may take to settle messages.
	settleWithin = 5 * time.Second
	// returnWithin is how long handlers that were cancelled have to return.
	returnWithin = time.Second
)

// A crew is the goroutines of a run.
type crew struct {
	idle     chan struct{}           // closed when all workers have ended
	cut      context.CancelCauseFunc // cancels the handlers
	stop     context.CancelFunc      // cancels everything
	settler  sync.WaitGroup
	extender sync.WaitGroup
}

// start starts the workers, the settler and the extender. The context that it
// returns has the values of ctx and not its end: work goes on while the run
// drains.
func (r *run[T]) start(ctx, polling context.Context) (settling context.Context, c *crew) {
	r.polling = polling
	c = &crew{idle: make(chan struct{})}
	settling, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	working, cut := context.WithCancelCause(settling)
	c.cut = cut
	for slot := range r.at {
		r.workers.Go(func() { r.work(working, settling, slot) })
	}
	go func() {
		r.workers.Wait()
		close(c.idle)
	}()
	c.settler.Go(func() { r.settleAcks(settling) })
	c.extender.Go(func() { r.extendLeases(settling) })
	return settling, c
}

// drain ends a run in order. What no handler has begun with is given back at
// once. Handlers may go on for the drain time; then they are cancelled, and their
// messages given back without waiting for them to return.
func (r *run[T]) drain(settling context.Context, c *crew) error {
	patience := time.NewTimer(max(0, r.loop.options.Drain))
	defer patience.Stop()
	// Nobody waits for this: a backend that hangs must not make the drain longer.
	var releasing sync.WaitGroup
	waiting := r.close()
	releasing.Go(func() { r.release(settling, waiting) })
	left := 0
	if !r.awaitWorkers(c, patience) {
		jobs := r.cutShort()
		c.cut(&mailbox.Error{Code: ErrShutdown, Op: "handle", Queue: r.loop.mailbox.Name()})
		r.giveBack(settling, jobs)
		left = r.awaitReturn(settling, c)
	}
	releasing.Wait()
	// All that is left is to be acked.
	last := time.AfterFunc(settleWithin, c.stop)
	defer last.Stop()
	r.mu.Lock()
	r.flushing = true
	r.toSettle.Broadcast()
	r.mu.Unlock()
	c.settler.Wait()
	c.cut(nil)
	c.stop()
	c.extender.Wait()
	if left > 0 {
		return &mailbox.Error{
			Code: ErrStuck, Op: opRun, Queue: r.loop.options.Name,
			Detail: fmt.Sprintf("%d of its handlers did not return when they were told to", left),
		}
	}
	return nil
}

// close keeps workers from taking anything more, and returns what waits.
func (r *run[T]) close() []*job[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	r.toWork.Broadcast()
	waiting := r.waiting
	r.waiting = nil
	return waiting
}

// awaitWorkers waits for the workers to end, while there is patience, and reports
// whether they have.
func (r *run[T]) awaitWorkers(c *crew, patience *time.Timer) bool {
	select {
	case <-c.idle:
		return true
	case <-patience.C:
	case <-r.abort:
	}
	return false
}

// cutShort marks all messages that are at a handler, and returns them. From then
// on what a handler fails with is no failure of the message: it was told to stop.
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

// giveBack gives back messages whose handlers were cut short, except those that
// have succeeded at the last moment. That they are ready again at once is on
// purpose: nothing is wrong with them.
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
	r.loop.options.Logger.LogAttrs(settling, slog.LevelWarn, "worker: handlers were cut short, their messages are given back",
		slog.String("loop", r.loop.options.Name), slog.Int("messages", len(jobs)))
	// A delivery that was cut does not count for the limit of a policy.
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

// awaitReturn waits for handlers that were cancelled to return, and for workers
// that are settling, but not for long, and returns how many handlers have not.
func (r *run[T]) awaitReturn(settling context.Context, c *crew) int {
	last := time.AfterFunc(settleWithin, c.stop)
	defer last.Stop()
	if within(returnWithin, c.idle) {
		return 0
	}
	stuck, busy := r.countLeft()
	if busy > 0 {
		select {
		case <-c.idle:
		case <-settling.Done(): // nothing that they do takes long any more
			within(returnWithin, c.idle)
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

// countLeft counts the workers whose handler was cut short and has not returned,
// and those that are settling.
func (r *run[T]) countLeft() (stuck, busy int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.at {
		switch {
		case j == nil:
		case j.cut || j.lost:
			stuck++
		default:
			busy++
		}
	}
	return stuck, busy
}
