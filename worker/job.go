package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// A job is a message that a run holds, and the context of its handler. The mutex of
// the run guards the fields unless they say otherwise.
type job[T any] struct {
	message *mailbox.Message[T] // never changes
	run     *run[T]             // never changes
	// id and group are those of the message when it was received: the handler may
	// change its fields.
	id, group string
	parent    context.Context // set when a worker takes the job
	lease     lease[T]
	// since is when the handler started or last made progress. While resting is
	// set, it need not make any.
	since   time.Duration
	resting bool
	phase   jobPhase
	slot    int32 // where it is in run.at, in a batch
	// alone: a worker took the job while nothing else was going on and acks were
	// quick. succeeded: the handler returned nil. acked: the worker has acked the
	// message. lost: the lease is lost. cut: the handler was cancelled at the end of
	// the drain time. unsure: an ack was tried and may have succeeded. dropped: the
	// result had no reply address.
	alone, succeeded, acked, lost, cut, unsure, dropped bool

	cancelled atomic.Bool // by the client of the request

	ended    bool      // the context has; guarded by contextMu
	progress *Progress // what the handler last reported; nil for nothing
	// batch is the call of a BatchHandler that handles the message, nil for a Handler.
	// It is changed under contextMu too.
	batch *batchCall[T]

	contextMu sync.Mutex // guards ended and live
	// A cancellable context costs as much as everything else that a quick message
	// needs, so it is made when the handler first needs it, or when there is a cause
	// to cancel it with.
	live *liveContext
}

// A liveContext is the context behind a job.
type liveContext struct {
	context context.Context
	cancel  context.CancelCauseFunc
}

// A jobPhase is the state of a job.
type jobPhase uint8

const (
	jobWaiting  jobPhase = iota // for a worker
	jobRunning                  // at its handler
	jobSettling                 // the handler has returned
	jobSettled                  // by the run, by the handler, or because the lease was lost
)

// cancel cancels the context of the handler with a cause, nil if the handler has
// returned. Only the first call counts.
func (j *job[T]) cancel(cause error) {
	j.contextMu.Lock()
	defer j.contextMu.Unlock()
	if j.ended {
		return
	}
	j.ended = true
	if j.batch != nil && cause != nil {
		j.batch.memberEnded(cause)
	}
	if j.live == nil && cause != nil {
		j.live = newLiveContext(j.parent)
	}
	if j.live != nil {
		j.live.cancel(cause)
	}
}

// isRequest reports whether the message names a reply slot.
func (j *job[T]) isRequest() bool {
	_, isSlot := driver.SlotID(j.message.ReplyTo)
	return isSlot
}

// watch ends the context of the handler when the client cancels the request, until stop is
// called.
func (j *job[T]) watch() (stop func()) {
	return j.message.OnCancel(j.parent, func(cause error) {
		j.cancelled.Store(true)
		j.cancel(cause)
	})
}

// context returns the context behind j.
func (j *job[T]) context() context.Context {
	j.contextMu.Lock()
	defer j.contextMu.Unlock()
	if j.live == nil {
		j.live = newLiveContext(j.parent)
		if j.ended {
			j.live.cancel(nil)
		}
	}
	return j.live.context
}

func newLiveContext(parent context.Context) *liveContext {
	live, cancel := context.WithCancelCause(parent)
	return &liveContext{live, cancel}
}

// Deadline implements context.Context.
func (j *job[T]) Deadline() (time.Time, bool) { return j.parent.Deadline() }

// Done implements context.Context.
func (j *job[T]) Done() <-chan struct{} { return j.context().Done() }

// Err implements context.Context.
func (j *job[T]) Err() error { return j.context().Err() }

// Value implements context.Context. It returns the job for heldKey.
func (j *job[T]) Value(key any) any {
	if key == (heldKey{}) {
		return held(j)
	}
	return j.context().Value(key)
}

// held is the part of a job, or of all jobs of a batch, that Beat, SetProgress and
// Extend use, for any type of message.
type held interface {
	beat()
	rest(resting bool)
	setProgress(ctx context.Context, progress Progress)
	dropResult(ctx context.Context)
	extend(ctx context.Context, visibility time.Duration) error
}

type heldKey struct{}

func (j *job[T]) beat() { j.run.beat(j) }

func (j *job[T]) rest(resting bool) { j.run.rest(resting, j) }

// beat records that the handlers of jobs make progress.
func (r *run[T]) beat(jobs ...*job[T]) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range jobs {
		j.since = now
	}
}

// rest records that the handlers of jobs wait for their turn, or go on.
func (r *run[T]) rest(resting bool, jobs ...*job[T]) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range jobs {
		j.since, j.resting = now, resting
	}
}

func (j *job[T]) extend(ctx context.Context, visibility time.Duration) error {
	return j.run.extendTo(ctx, j, visibility)
}

// Beat records progress: a handler that works for long calls it now and then, with
// its context or one derived from it, so that the watchdog of a Group does not
// report it as stuck. With any other context it does nothing.
func Beat(ctx context.Context) {
	if job, ok := ctx.Value(heldKey{}).(held); ok {
		job.beat()
	}
}

// rest tells the watchdog that the handler with this context waits for its turn,
// until resume is called.
func rest(ctx context.Context) (resume func()) {
	job, ok := ctx.Value(heldKey{}).(held)
	if !ok {
		return func() {}
	}
	job.rest(true)
	return func() { job.rest(false) }
}

// Extend leases the message of the handler with this context for at least
// visibility from now. Handlers need it only if the process may stop for longer
// than Options.Visibility, as when a laptop sleeps: the loop extends leases, and
// never shortens one that Extend made longer. The backend call uses ctx too. Codes:
// those of Message.Extend, and ErrInvalid if ctx is not the context of a handler.
func Extend(ctx context.Context, visibility time.Duration) error {
	job, ok := ctx.Value(heldKey{}).(held)
	if !ok {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "extend", Field: "ctx", Detail: "is not the context of a handler"}
	}
	return job.extend(ctx, visibility)
}
