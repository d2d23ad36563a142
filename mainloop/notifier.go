package mainloop

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/worker"
)

// notifier tells failures as results. A client of a main loop, in whatever
// language, reads one type only.
type notifier[Req, Out any] struct{ loop *MainLoop[Req, Out] }

// Waits reports whether somebody gets the result.
func (n notifier[Req, Out]) Waits(message *mailbox.Message[Request[Req]]) bool {
	return message.ExpectsReply() || n.loop.options.Responses != nil
}

// Fail sends a result with the error.
func (n notifier[Req, Out]) Fail(ctx context.Context, message *mailbox.Message[Request[Req]], failure error) error {
	result := Result[Out]{RequestID: message.Body.ID}
	if noted, ok := errors.AsType[note[Out]](failure); ok {
		result = noted.result
	}
	if result.RequestID == "" {
		result.RequestID = message.ID
	}
	result.fail(failure)
	return worker.Answer(ctx, message, result, n.loop.serveOptions())
}

// A note goes with an error from the run that failed to the notifier, which may
// be called much later. It adds nothing to the text.
type note[Out any] struct{ result Result[Out] }

// Error makes it an error, which is the only way to travel with one.
func (n note[Out]) Error() string { return "" }

// on returns err with the note. It is wrapped by fmt, so that who names the type
// of the error passes over the wrapper and finds err.
func (n note[Out]) on(err error) error { return fmt.Errorf("%w%w", err, n) }
