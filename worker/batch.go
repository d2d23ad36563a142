package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/goroutine"
)

// Defaults of BatchOptions.
const (
	defaultBatchSize = 100
	defaultBatchFill = 100 * time.Millisecond
)

// A BatchHandler handles several messages at once. Each message is settled according to
// its own result: if the handler returns a *mailbox.BatchError with an error or nil for
// each message, that is the message's result; any other error, also one that wraps a
// *mailbox.BatchError, nil, and a panic are the result of every message. Results mean what those of a Handler mean, and a message
// that the handler has settled stays as it is.
//
// Its context ends when it returns, when the leases of all its messages are lost, after
// Options.Timeout, or at the end of the drain time; context.Cause says which. Beat,
// SetProgress and Extend with this context are for all messages of the batch. It must be
// safe for concurrent use if Options.Concurrency is above one.
type BatchHandler[T any] func(ctx context.Context, messages []*mailbox.Message[T]) error

// BatchOptions configure a loop for batches. The zero value, and nil, are the defaults.
type BatchOptions[T any] struct {
	// Options are those of any loop, with these differences: Concurrency is how many
	// batches are handled at once, Timeout bounds how long a handler may take for a
	// batch, and there is no Middleware, which wraps handlers of single messages.
	Options[T]
	// Size is how many messages a batch has at most. 0 means 100. Size
	// times Concurrency is at most 65,536.
	Size int
	// Fill is how long a batch that is not full waits for more messages, counted from
	// when its first one was received. 0 means 100 ms, a negative value no
	// time.
	Fill time.Duration
}

// NewBatch returns a loop that hands messages to handler in batches, in the order in
// which they were received. A batch of a queue with strict groups has at most one message
// of each group. Messages that wait for their batch to fill are leased, and released
// when the loop stops. NewBatch does no I/O and does not check the options: Run does.
func NewBatch[T any](from *mailbox.Mailbox[T], handler BatchHandler[T], options *BatchOptions[T]) *Loop[T] {
	var o BatchOptions[T]
	if options != nil {
		o = *options
	}
	if o.Size == 0 {
		o.Size = defaultBatchSize
	}
	if o.Fill == 0 {
		o.Fill = defaultBatchFill
	}
	l := New(from, nil, &o.Options)
	l.batches = &batching[T]{handler, o.Size, o.Fill}
	return l
}

// batching is what a loop for batches has instead of a Handler.
type batching[T any] struct {
	handler BatchHandler[T]
	size    int
	fill    time.Duration
}

// checkBatches returns why the loop cannot handle batches. The other options are right.
func (l *Loop[T]) checkBatches() error {
	o, size := &l.options, l.batches.size
	switch {
	case size < 0:
		return l.invalid("Size", fmt.Sprintf("%d is negative", size))
	case size > maxConcurrency/o.Concurrency:
		return l.invalid("Size", fmt.Sprintf("%d messages in %d batches are over the limit of %d", size, o.Concurrency, maxConcurrency))
	case o.NoExtend && l.batches.fill >= o.Visibility:
		return l.invalid("Fill", fmt.Sprintf("%v is not below Visibility, %v: leases would end before a batch is full, because NoExtend is set", l.batches.fill, o.Visibility))
	case len(o.Middleware) > 0:
		return l.invalid("Middleware", "is for handlers of single messages; wrap the batch handler instead")
	}
	return nil
}

// workBatches calls the batch handler on one batch after the other. Its jobs are in
// r.at from slot first on. The contexts are those of work.
func (r *run[T]) workBatches(ctx, settling context.Context, first int) {
	size := r.loop.batches.size
	var current *batchCall[T]
	defer func() {
		if current == nil {
			return
		}
		// The handler has called runtime.Goexit, and this worker ends with it.
		r.finishBatch(settling, current, errGoexit)
		r.endBatch()
		r.workers.Go(func() { r.workBatches(ctx, settling, first) })
	}()
	number := goroutine.ID()
	r.mu.Lock()
	for slot := first; slot < first+size; slot++ {
		r.numbers[slot] = number
	}
	r.mu.Unlock()
	own, end := context.WithCancel(ctx)
	defer end()
	for {
		jobs := r.nextBatch(own, first)
		if len(jobs) == 0 {
			return
		}
		current = &batchCall[T]{run: r, jobs: jobs}
		err := r.handleBatch(own, settling, current) //nolint:contextcheck // the call is the context
		r.finishBatch(settling, current, err)
		r.endBatch()
		current = nil
	}
}

// nextBatch returns the next batch, whose messages are in r.at from slot first on. It
// blocks until there is one, and returns nil when there will be none.
func (r *run[T]) nextBatch(parent context.Context, first int) []*job[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closing {
		now := r.now()
		if r.filledLocked(now) {
			if jobs := r.takeBatchLocked(parent, first, now); len(jobs) > 0 {
				r.batching++
				r.callWorkerLocked()
				r.callFetcherLocked()
				return jobs
			}
		}
		if r.last && len(r.waiting) == 0 {
			return nil
		}
		r.callFetcherLocked()
		r.idle++
		r.toWork.Wait()
		r.idle--
		r.waking = false
	}
	return nil
}

// endBatch records that a worker has finished its batch.
func (r *run[T]) endBatch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batching--
}

// filledLocked reports whether the messages that wait are a batch now. If they will be
// one later, it sets the timer.
func (r *run[T]) filledLocked(now time.Duration) bool {
	batches := r.loop.batches
	if len(r.waiting) == 0 {
		return false
	}
	left := r.waiting[0].since + batches.fill - now
	if len(r.waiting) >= batches.size || left <= 0 || r.last {
		return true
	}
	if r.fill == nil {
		r.fill = time.AfterFunc(left, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.fill = nil
			r.callWorkerLocked()
		})
	}
	return false
}

// stopFillLocked stops the timer for batches.
func (r *run[T]) stopFillLocked() {
	if r.fill != nil {
		r.fill.Stop()
		r.fill = nil
	}
}

// takeBatchLocked takes up to a batch of the jobs that may be handled now.
func (r *run[T]) takeBatchLocked(parent context.Context, first int, now time.Duration) []*job[T] {
	var jobs []*job[T]
	for len(jobs) < r.loop.batches.size {
		j := r.takeLocked()
		if j == nil {
			break
		}
		slot := first + len(jobs)
		j.phase, j.since, j.parent, j.slot = jobRunning, now, parent, int32(slot)
		r.at[slot] = j
		r.running++
		jobs = append(jobs, j)
	}
	return jobs
}

// handleBatch calls the handler on the messages of a batch, except those whose handler must not
// start, which it removes from the batch and finishes.
func (r *run[T]) handleBatch(own, settling context.Context, call *batchCall[T]) error {
	o := &r.loop.options
	r.startable(settling, call)
	if len(call.jobs) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(own)
	defer cancel(nil)
	if o.Timeout > 0 {
		limited, end := context.WithTimeoutCause(ctx, o.Timeout, &mailbox.Error{
			Code: mailbox.ErrTimeout, Op: "handle", Queue: r.loop.mailbox.Name(),
			Detail: fmt.Sprintf("the handler took longer than %v for a batch", o.Timeout),
		})
		defer end()
		ctx = limited
	}
	call.begin(ctx, cancel)
	messages := make([]*mailbox.Message[T], len(call.jobs))
	for i, j := range call.jobs {
		messages[i] = j.message
		if o.Hooks.Started != nil {
			r.loop.started(call, r.loop.info(j.message))
		}
	}
	for _, j := range call.jobs {
		if j.isRequest() {
			defer j.watch()()
		}
	}
	call.began = r.now()
	return callBatch(call, r.loop.batches.handler, messages)
}

// callBatch runs a handler and turns a panic into an error.
func callBatch[T any](ctx context.Context, handler BatchHandler[T], messages []*mailbox.Message[T]) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return handler(ctx, messages)
}

// startable removes and finishes the messages whose handler must not start. It asks about the
// slots of requests concurrently, because each may be a call of the reply store.
func (r *run[T]) startable(settling context.Context, call *batchCall[T]) {
	starts, errs := make([]bool, len(call.jobs)), make([]error, len(call.jobs))
	var asking sync.WaitGroup
	for i, j := range call.jobs {
		look := func() { starts[i], errs[i] = r.mayStart(j) }
		if j.isRequest() {
			asking.Go(look)
		} else {
			look()
		}
	}
	asking.Wait()
	if !slices.Contains(starts, false) {
		return
	}
	over := &batchCall[T]{run: r}
	kept, refused := call.jobs[:0:0], errs[:0]
	for i, j := range call.jobs {
		if starts[i] {
			kept = append(kept, j)
			continue
		}
		over.jobs, refused = append(over.jobs, j), append(refused, errs[i])
	}
	call.jobs = kept
	r.finishBatch(settling, over, &mailbox.BatchError{Errs: refused})
}

// finishBatch settles the messages of a batch whose handler has returned err. Those
// that succeeded are passed to the settler together; requests and those that failed are
// settled here, concurrently, because each may be a call of the backend.
func (r *run[T]) finishBatch(settling context.Context, call *batchCall[T], err error) {
	var succeeded []*job[T]
	var others sync.WaitGroup
	for i, j := range call.jobs {
		e := call.result(err, i)
		if call.Context != nil && r.loop.options.Hooks.Finished != nil {
			r.loop.finished(call, FinishedEvent{Info: r.loop.info(j.message), Duration: r.now() - call.began, Err: e})
		}
		if e == nil && !j.isRequest() {
			r.finish(settling, j, nil)
			j.cancel(nil)
			succeeded = append(succeeded, j)
			continue
		}
		others.Go(func() {
			r.finish(settling, j, e)
			j.cancel(nil)
			r.batchDone(j)
		})
	}
	r.batchDone(succeeded...)
	others.Wait()
}

// batchDone takes jobs from their worker.
func (r *run[T]) batchDone(jobs ...*job[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range jobs {
		r.doneLocked(int(j.slot), j)
	}
}

// A batchCall is one call of a BatchHandler. It is the context of the handler.
type batchCall[T any] struct {
	context.Context

	run   *run[T]
	jobs  []*job[T]
	began time.Duration // when the handler was called

	cancel context.CancelCauseFunc

	mu   sync.Mutex // guards left
	left int        // messages whose lease is not lost
}

// begin makes the call the context of its handler.
func (c *batchCall[T]) begin(ctx context.Context, cancel context.CancelCauseFunc) {
	c.Context, c.cancel, c.left = ctx, cancel, len(c.jobs)
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	for _, j := range c.jobs {
		j.contextMu.Lock()
		j.batch = c
		if j.ended { // its lease was lost a moment ago
			c.memberEnded(mailbox.ErrReceiptExpired)
		}
		j.contextMu.Unlock()
	}
}

// result returns the result of message i if the handler has returned err.
func (c *batchCall[T]) result(err error, i int) error {
	if batch, ok := err.(*mailbox.BatchError); ok { //nolint:errorlint // beside another error, or in a panic, it is not the result
		switch {
		case batch == nil:
			err = nil
		case len(batch.Errs) == len(c.jobs):
			err = batch.Errs[i]
		}
	}
	if c.Context == nil { // the handler was not called
		return err
	}
	return explain(c, err)
}

// memberEnded cancels the handler when the context of a message ends: if its lease was
// lost or its request cancelled, only when that is so for all.
func (c *batchCall[T]) memberEnded(cause error) {
	c.mu.Lock()
	c.left--
	left := c.left
	c.mu.Unlock()
	if left <= 0 || !errors.Is(cause, mailbox.ErrReceiptExpired) && !errors.Is(cause, mailbox.ErrReplyCancelled) {
		c.cancel(cause)
	}
}

// Value implements context.Context. It returns the call for heldKey.
func (c *batchCall[T]) Value(key any) any {
	if key == (heldKey{}) {
		return held(c)
	}
	return c.Context.Value(key)
}

func (c *batchCall[T]) beat() { c.run.beat(c.jobs...) }

func (c *batchCall[T]) rest(resting bool) { c.run.rest(resting, c.jobs...) }

func (c *batchCall[T]) setProgress(ctx context.Context, progress Progress) {
	c.run.setProgress(ctx, progress, c.jobs...)
}

func (c *batchCall[T]) dropResult(ctx context.Context) {
	for _, j := range c.jobs {
		j.dropResult(ctx)
	}
}

// extend extends the leases one by one; position i of the error is that of message i.
func (c *batchCall[T]) extend(ctx context.Context, visibility time.Duration) error {
	errs := make([]error, len(c.jobs))
	failed := false
	for i, j := range c.jobs {
		errs[i] = j.extend(ctx, visibility)
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return &mailbox.BatchError{Errs: errs}
}
