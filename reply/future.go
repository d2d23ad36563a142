package reply

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

const (
	// waitStep bounds one Wait call of the store if the end of the slot is unknown.
	// The store wakes it earlier; the bound protects callers from a broken store.
	waitStep = time.Minute
	// graceAfterTTL is how much later a slot may end by the clock of its store. After
	// that the future ends anyway.
	graceAfterTTL = 5 * time.Second
	// If a store returns too early, a wait pauses for wakePauseMin, doubling up to
	// wakePauseMax, so that it does not spin.
	wakePauseMin = time.Millisecond
	wakePauseMax = time.Second
)

// futures has what the futures of one client share.
type futures[R any] struct {
	store driver.ReplyStore
	codec mailbox.Codec[R]
	keep  bool
}

// forget removes a slot that is not needed any more, also when ctx has ended. If
// that fails, the slot expires.
func (f *futures[R]) forget(ctx context.Context, id string) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
	}
	_ = f.store.Delete(ctx, id)
}

// A discarder is a store that removes a resolved slot in the background. The id must
// not be used again.
type discarder interface {
	Discard(ctx context.Context, id string)
}

// A Future is an answer that may arrive later. It is safe for concurrent use: every
// caller that waits gets the answer, any number of times.
//
// Its methods ask the store until the outcome is known, and remember it. Each ends
// early, with the context's own error, when its context does, and can be repeated
// then, as it can after ErrUnavailable.
type Future[R any] struct {
	*futures[R]
	id    string
	lives time.Duration // the TTL of the slot; 0 if unknown
	fresh bool          // the id was made for this request

	mu      sync.Mutex // guards the fields below
	ends    time.Time  // the end of the slot by our clock; zero if unknown
	outcome outcome[R] // never changes once it is done
}

// An outcome is how a future ended.
type outcome[R any] struct {
	done  bool
	state driver.SlotState
	value R
	err   error
}

// ID returns the id of the answer, for Client.Future.
func (f *Future[R]) ID() string { return f.id }

// Wait returns the answer as soon as it arrives. The answer wakes it, and so do
// Cancel, in any process, and the end of the slot's TTL. An error answer is a
// *mailbox.Failure.
//
// Codes: ErrTimeout when the slot's TTL is over, which is ErrReplyExpired too, and
// when the deadline of ctx has passed, which is context.DeadlineExceeded too, and
// after which Wait can be called again; ErrReplyCancelled; ErrEncoding if the answer
// cannot be decoded; ErrNotFound if the slot does not exist, because another caller
// has read the answer, or it expired long ago.
func (f *Future[R]) Wait(ctx context.Context) (R, error) {
	answer, err := f.wait(ctx)
	if err != nil && err == ctx.Err() && errors.Is(err, context.DeadlineExceeded) { //nolint:errorlint // only the error of ctx itself
		err = &mailbox.Error{Code: mailbox.ErrTimeout, Op: "wait", MessageID: f.id, Detail: "the deadline of the context has passed", Err: err}
	}
	return answer, err
}

// wait waits like Wait, with the error of ctx unchanged.
func (f *Future[R]) wait(ctx context.Context) (R, error) {
	pause := wakePauseMin
	for {
		asked := time.Now()
		done, ends := f.begin(asked)
		if done != nil {
			return done.value, done.err
		}
		step := waitStep
		if !ends.IsZero() {
			step = max(ends.Sub(asked), wakePauseMax)
		}
		slot, err := f.find(ctx, step)
		if err != nil || slot.State != driver.SlotPending {
			return f.conclude(ctx, slot, err)
		}
		now := time.Now()
		if !ends.IsZero() && now.Sub(ends) > graceAfterTTL {
			return f.conclude(ctx, driver.Slot{ID: f.id, State: driver.SlotExpired}, nil)
		}
		if now.Sub(asked) < step {
			if err := backoff.Pause(ctx, pause); err != nil {
				var none R
				return none, err
			}
			pause = min(2*pause, wakePauseMax)
		}
	}
}

// begin returns the outcome if it is known, and otherwise when the slot must have
// ended. The first wait sets that time, so that neither a spurious wake-up nor
// another wait restarts it.
func (f *Future[R]) begin(now time.Time) (*outcome[R], time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outcome.done {
		return &f.outcome, time.Time{}
	}
	if f.ends.IsZero() && f.lives > 0 {
		f.ends = now.Add(f.lives)
	}
	return nil, f.ends
}

// Poll returns the answer if it has arrived; ready is false while it has not.
// Codes: as Wait.
func (f *Future[R]) Poll(ctx context.Context) (answer R, ready bool, err error) {
	if done := f.known(); done != nil {
		return done.value, done.err == nil, done.err
	}
	slot, err := f.find(ctx, 0)
	if err == nil && slot.State == driver.SlotPending {
		return answer, false, nil
	}
	answer, err = f.conclude(ctx, slot, err)
	return answer, err == nil, err
}

// Ready reports whether there is an answer, a value or a failure, without
// reading it. Codes: ErrUnavailable.
func (f *Future[R]) Ready(ctx context.Context) (bool, error) { return f.is(ctx, driver.SlotResolved) }

// Cancelled reports whether the request was cancelled. Codes: ErrUnavailable.
func (f *Future[R]) Cancelled(ctx context.Context) (bool, error) {
	return f.is(ctx, driver.SlotCancelled)
}

func (f *Future[R]) is(ctx context.Context, state driver.SlotState) (bool, error) {
	if done := f.known(); done != nil {
		return done.state == state, nil
	}
	slot, err := f.find(ctx, 0)
	if errors.Is(err, mailbox.ErrNotFound) {
		return false, nil
	}
	return err == nil && slot.State == state, err
}

// Cancel cancels the request and wakes all that wait for its answer. A worker that
// has not started it will not, and one that has gets an error when it replies.
// Cancelling twice is fine. Codes: ErrReplyAlreadySent if the answer came first,
// ErrReplyExpired, ErrNotFound.
func (f *Future[R]) Cancel(ctx context.Context) error {
	if f.store == nil {
		return f.noStore()
	}
	if done := f.known(); done != nil {
		if done.state == driver.SlotCancelled {
			return nil
		}
		return done.state.WriteError("cancel", f.id)
	}
	err := f.store.Cancel(ctx, f.id)
	if err == nil {
		f.remember(outcome[R]{state: driver.SlotCancelled, err: driver.SlotError("wait", f.id, driver.ErrReplyCancelled)})
	}
	return err
}

// abandon cancels the request of a caller that gives up because of cause. ctx may
// have ended. If the answer came first, abandon returns it.
func (f *Future[R]) abandon(ctx context.Context, cause error) (R, error) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if errors.Is(f.Cancel(cleanup), mailbox.ErrReplyAlreadySent) {
		if answer, err := f.Wait(cleanup); f.known() != nil {
			return answer, err
		}
	}
	var none R
	return none, cause
}

func (f *Future[R]) find(ctx context.Context, wait time.Duration) (driver.Slot, error) {
	if f.store == nil {
		return driver.Slot{}, f.noStore()
	}
	return f.store.Wait(ctx, f.id, wait)
}

func (f *Future[R]) noStore() error {
	return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "wait", Field: "client", Detail: "has no store"}
}

// conclude turns the store's answer about a slot that is not pending into the
// outcome.
func (f *Future[R]) conclude(ctx context.Context, slot driver.Slot, err error) (R, error) {
	var done outcome[R]
	switch {
	case errors.Is(err, mailbox.ErrNotFound):
		// Another goroutine may have read the answer, and removed it.
		if known := f.known(); known != nil {
			return known.value, known.err
		}
		if _, ends := f.begin(time.Now()); ends.IsZero() || time.Now().Before(ends) {
			return done.value, err
		}
		done = f.timeout()
	case err != nil:
		return done.value, err
	case slot.State == driver.SlotResolved:
		done = f.open(slot.Answer)
	case slot.State == driver.SlotCancelled:
		done = outcome[R]{state: slot.State, err: slot.State.WriteError("wait", f.id)}
	default:
		done = f.timeout()
	}
	f.remember(done)
	// A cancelled slot stays, to tell the worker.
	if err == nil && done.state != driver.SlotCancelled && !(f.keep && done.state == driver.SlotResolved) {
		f.discard(ctx, done.state)
	}
	return done.value, done.err
}

// discard removes the slot after its answer was read: in the background, if the store
// can and the id is never used again.
func (f *Future[R]) discard(ctx context.Context, state driver.SlotState) {
	if store, ok := f.store.(discarder); ok && f.fresh && state == driver.SlotResolved {
		store.Discard(ctx, f.id)
		return
	}
	f.forget(ctx, f.id)
}

func (f *Future[R]) timeout() outcome[R] {
	timeout := driver.SlotError("wait", f.id, driver.ErrTimeout)
	timeout.Err = driver.ErrReplyExpired
	return outcome[R]{state: driver.SlotExpired, err: timeout}
}

// open decodes an answer into an outcome.
func (f *Future[R]) open(answer driver.Answer) outcome[R] {
	done := outcome[R]{state: driver.SlotResolved}
	if answer.Failure != "" {
		done.err = &mailbox.Failure{Kind: mailbox.FailureKind(answer.FailureKind), Text: answer.Failure}
		return done
	}
	value, err := f.codec.Decode(answer.Body)
	if err != nil {
		undecodable := driver.SlotError("wait", f.id, driver.ErrEncoding)
		undecodable.Detail, undecodable.Err = f.codec.ContentType(), err
		done.err = undecodable
		return done
	}
	done.value = value
	return done
}

// known returns the outcome, nil while there is none.
func (f *Future[R]) known() *outcome[R] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.outcome.done {
		return nil
	}
	return &f.outcome
}

func (f *Future[R]) remember(found outcome[R]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.outcome.done {
		found.done = true
		f.outcome = found
	}
}
