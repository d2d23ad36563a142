package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/goroutine"
)

var errGoexit = errors.New("the handler called runtime.Goexit")

// work calls the handler on one message after the other. ctx is the parent context
// of the handlers, settling that of settling.
func (r *run[T]) work(ctx, settling context.Context, slot int) {
	var current *job[T]
	defer func() {
		if current == nil {
			return
		}
		// The handler has called runtime.Goexit, and this worker ends with it.
		r.finish(settling, current, errGoexit)
		current.cancel(nil)
		r.mu.Lock()
		r.doneLocked(slot, current)
		r.mu.Unlock()
		r.workers.Go(func() { r.work(ctx, settling, slot) })
	}()
	number := goroutine.ID()
	r.mu.Lock()
	r.numbers[slot] = number
	r.mu.Unlock()
	// Each worker has its own parent context, because deriving and cancelling a
	// context locks the parent.
	own, end := context.WithCancel(ctx)
	defer end()
	var done *job[T]
	for {
		j := r.next(own, slot, done)
		if j == nil {
			return
		}
		current = j
		err := r.handle(j) //nolint:contextcheck // the job is the context
		r.finish(settling, j, err)
		j.cancel(nil)
		current, done = nil, j
	}
}

// handle calls the handler, if it may start.
func (r *run[T]) handle(j *job[T]) error {
	l := r.loop
	o := &l.options
	if start, err := r.mayStart(j); !start {
		return err
	}
	if j.isRequest() {
		defer j.watch()()
	}
	if o.Timeout == 0 && o.Hooks.Started == nil && o.Hooks.Finished == nil {
		err := call(j, l.handler, j.message)
		if err != nil {
			err = explain(j, err)
		}
		return err
	}
	var ctx context.Context = j
	if o.Timeout > 0 {
		limited, cancel := context.WithTimeoutCause(j, o.Timeout, &mailbox.Error{
			Code: mailbox.ErrTimeout, Op: "handle", Queue: l.mailbox.Name(), MessageID: j.id,
			Detail: fmt.Sprintf("the handler took longer than %v", o.Timeout),
		})
		defer cancel()
		ctx = limited
	}
	return r.observe(ctx, j)
}

// mayStart reports whether the handler of a job may start. If not, err is its result: nil acks a
// message that was handled before, or a request that needs no answer any more. It asks the reply
// store about a request whose slot was not read with it.
func (r *run[T]) mayStart(j *job[T]) (start bool, err error) {
	if _, done := r.loop.completed.get(j.id); done {
		return false, nil
	}
	if err := r.overLimit(j, j); err != nil {
		return false, err
	}
	if !j.isRequest() {
		return true, nil
	}
	start, err = mailbox.NewReplyChannel[struct{}](j.message, nil).Open(j)
	if err != nil {
		// The request has not been served, and nothing is wrong with it.
		return false, &outcome{kind: outcomeUnsent, err: err}
	}
	return start, nil
}

// observe calls the handler and the hooks.
func (r *run[T]) observe(ctx context.Context, j *job[T]) (err error) {
	l := r.loop
	info := l.info(j.message)
	l.started(ctx, info)
	began := time.Now()
	err = errGoexit // unless it returns
	defer func() { l.finished(ctx, FinishedEvent{Info: info, Duration: time.Since(began), Err: err}) }()
	err = explain(ctx, call(ctx, l.handler, j.message))
	return err
}

// explain adds the cause of the context's end to an error that lacks it.
func explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// finish settles a message whose handler has returned. Messages of successful
// handlers are left to the settler, which acks in batches.
func (r *run[T]) finish(settling context.Context, j *job[T], err error) {
	forSettler := err == nil && !j.isRequest() && !j.message.Settled()
	j.succeeded = err == nil
	if forSettler && j.alone {
		r.ackAlone(settling, j)
	}
	if forSettler && !r.strict {
		return
	}
	r.mu.Lock()
	gone := j.phase == jobSettled || j.cut && err != nil
	if !gone {
		j.phase = jobSettling
		// The handler made progress, and was not quick.
		j.since = max(j.since, r.now()-ackQuick)
	}
	r.mu.Unlock()
	switch {
	case gone || forSettler:
	case j.message.Settled():
		r.settle(settling, j, SettledEvent{Result: ResultHandler, Cause: err})
	case err == nil:
		r.ackRequest(settling, j)
	case j.cancelled.Load():
		r.loop.failed(settling, slog.LevelInfo, "worker: request was cancelled", j.message, err)
		r.ackFailedWork(settling, j, ResultAcked, err)
	default:
		r.failSafely(settling, j, err)
	}
	if r.strict && (err != nil || gone) {
		r.releaseGroup(settling, j.group)
	}
}

// settle removes a job from the run and calls the hook.
func (r *run[T]) settle(ctx context.Context, j *job[T], event SettledEvent) {
	r.mu.Lock()
	r.settledLocked(j)
	r.mu.Unlock()
	r.loop.settled(ctx, j.message, event)
}

// failed logs a failure of a message.
func (l *Loop[T]) failed(ctx context.Context, level slog.Level, text string, message *mailbox.Message[T], cause error, attrs ...slog.Attr) {
	o := &l.options
	if !o.Logger.Enabled(ctx, level) {
		return
	}
	attrs = append([]slog.Attr{
		slog.String("loop", o.Name), slog.String("id", message.ID),
		slog.Int("deliveries", message.Deliveries), slog.Any("err", cause),
	}, attrs...)
	if panicked, ok := errors.AsType[*PanicError](cause); ok {
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	o.Logger.LogAttrs(ctx, level, text, attrs...)
}
