package reply

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

// serving is the context of a function that serves a request. It ends with its parent, and when
// the client cancels the request. A cancellable context is made when the function first needs
// it: most requests are served before that.
type serving struct {
	parent context.Context //nolint:containedctx // it is a context

	mu    sync.Mutex // guards the fields below
	live  context.Context
	end   context.CancelCauseFunc
	cause error // why it has ended
}

// cancel ends the context with a cause. Only the first call counts.
func (s *serving) cancel(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
		if s.end != nil {
			s.end(cause)
		}
	}
}

// cancelled reports whether the client has cancelled the request.
func (s *serving) cancelled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Is(s.cause, mailbox.ErrReplyCancelled)
}

// context returns the context behind s.
func (s *serving) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		s.live, s.end = context.WithCancelCause(s.parent)
		if s.cause != nil {
			s.end(s.cause)
		}
	}
	return s.live
}

// Deadline implements context.Context.
func (s *serving) Deadline() (time.Time, bool) { return s.parent.Deadline() }

// Done implements context.Context.
func (s *serving) Done() <-chan struct{} { return s.context().Done() }

// Err implements context.Context.
func (s *serving) Err() error { return s.context().Err() }

// Value implements context.Context.
func (s *serving) Value(key any) any { return s.context().Value(key) }

// untilCancelled calls serve with a context that ends when the client cancels the request, and
// reports whether it did.
func untilCancelled[T, R any](ctx context.Context, message *mailbox.Message[T], serve func(context.Context, *mailbox.Message[T]) (R, error)) (value R, cancelled bool, err error) {
	if !message.ExpectsReply() {
		value, err = serve(ctx, message)
		return value, false, err
	}
	s := &serving{parent: ctx}
	defer s.cancel(context.Canceled)
	defer message.OnCancel(ctx, s.cancel)()
	value, err = serve(s, message)
	return value, ctx.Err() == nil && s.cancelled(), err
}
