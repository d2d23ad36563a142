package worker

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

// A job is a message that a run holds, and the context of the handler that has
// it. The mutex of the run guards what says nothing else.
type job[T any] struct {
	message *mailbox.Message[T] // never changes
	run     *run[T]             // never changes
	// id and group are those of the message as it came: its fields are the
	// handler's to change.
	id, group string
	parent    context.Context // set when a worker takes it, before anybody can ask
	lease     lease[T]
	// since is when the handler began, or gave its last sign of life, and resting
	// that it need not give any.
	since   time.Duration
	resting bool
	phase   jobPhase
	// alone is set when a worker takes it while nothing else is going on, and acks
	// are quick. succeeded is set by the worker when the handler has returned without an
	// error, acked when the worker has acked the message too, lost when the lease
	// is, cut when the run could not wait for the handler, unsure when an ack
	// was tried and may have worked, and dropped when the result of the handler had
	// no address to go to.
	alone, succeeded, acked, lost, cut, unsure, dropped bool

	contextMu sync.Mutex // guards the fields below
	ended     bool
	// A context that can be cancelled costs as much as all else that is done for
	// a quick message, so it is made when the handler first asks for something
	// that it is needed for, or when there is a cause to end it with.
	live *liveContext
}

// A liveContext is the one that a job stands for.
type liveContext struct {
	context context.Context
	cancel  context.CancelCauseFunc
}

// A jobPhase is where in its stay with the run a message is.
type jobPhase uint8

const (
	jobWaiting  jobPhase = iota // for a worker
	jobRunning                  // at its handler
	jobSettling                 // the handler has returned
	jobSettled                  // by us, by the handler, or by losing it
)

// cancel ends the context of the handler, with a cause, or with none if the
// handler has returned. Only the first counts.
func (j *job[T]) cancel(cause error) {
	j.contextMu.Lock()
	defer j.contextMu.Unlock()
	if j.ended {
		return
	}
	j.ended = true
	if j.live == nil && cause != nil {
		j.live = newLiveContext(j.parent)
	}
	if j.live != nil {
		j.live.cancel(cause)
	}
}

// context returns the one that j stands for.
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

// Deadline, Done, Err and Value make j a context.
func (j *job[T]) Deadline() (time.Time, bool) { return j.parent.Deadline() }

// Done is that of the context that j stands for.
func (j *job[T]) Done() <-chan struct{} { return j.context().Done() }

// Err is that of the context that j stands for.
func (j *job[T]) Err() error { return j.context().Err() }

// Value returns the job for heldKey, and otherwise what the context knows.
func (j *job[T]) Value(key any) any {
	if key == (heldKey{}) {
		return held(j)
	}
	return j.context().Value(key)
}

// held is what Beat and Extend need of a job of any type.
type held interface {
	beat()
	rest(resting bool)
	dropResult(ctx context.Context)
	extend(ctx context.Context, visibility time.Duration) error
}

type heldKey struct{}

func (j *job[T]) beat() {
	now := j.run.now()
	j.run.mu.Lock()
	defer j.run.mu.Unlock()
	j.since = now
}

func (j *job[T]) rest(resting bool) {
	now := j.run.now()
	j.run.mu.Lock()
	defer j.run.mu.Unlock()
	j.since, j.resting = now, resting
}

func (j *job[T]) extend(ctx context.Context, visibility time.Duration) error {
	return j.run.extendTo(ctx, j, visibility)
}

// Beat is a sign of life: a handler that works for long calls it now and then,
// with its context or one derived from it, so that the watchdog of a Group does
// not take it for stuck. With any other context it does nothing.
func Beat(ctx context.Context) {
	if job, ok := ctx.Value(heldKey{}).(held); ok {
		job.beat()
	}
}

// rest says that the handler with this context waits for its turn, which no
// watchdog is to mind until the function that it returns is called.
func rest(ctx context.Context) (resume func()) {
	job, ok := ctx.Value(heldKey{}).(held)
	if !ok {
		return func() {}
	}
	job.rest(true)
	return func() { job.rest(false) }
}

// Extend makes sure that the message that the handler with this context has is
// leased for at least visibility from now. Handlers need it only if the process
// may stop for longer than Options.Visibility, as when a laptop sleeps: the loop
// extends by itself, and never makes a lease shorter that was made longer here.
// It uses the context for the call as well. Codes: those of Message.Extend, and
// ErrInvalid if the context is not that of a handler.
func Extend(ctx context.Context, visibility time.Duration) error {
	job, ok := ctx.Value(heldKey{}).(held)
	if !ok {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "extend", Field: "ctx", Detail: "is not that of a handler"}
	}
	return job.extend(ctx, visibility)
}
