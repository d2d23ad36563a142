package mainloop

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/worker"
)

// notifier sends failures as results, so that a client of a main loop, in any language,
// reads one type only.
type notifier[Req, Out any] struct{ loop *MainLoop[Req, Out] }

// Waits reports whether the result has an address.
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

// A note carries the result of a failed run to the notifier, which may run much later,
// inside the error. It adds nothing to the text.
type note[Out any] struct{ result Result[Out] }

// Error makes note an error, so that an error can wrap it.
func (n note[Out]) Error() string { return "" }

// on returns err with the note. It wraps with fmt, so that mailbox.ErrorType skips the
// wrapper and finds err.
func (n note[Out]) on(err error) error { return fmt.Errorf("%w%w", err, n) }
