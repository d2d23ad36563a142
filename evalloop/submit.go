package evalloop

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/mainloop"
)

// submitAtOnce bounds the requests of one send.
const submitAtOnce = 100

// A Submission is a dataset to run.
type Submission[In, Expected any] struct {
	Dataset *Dataset[In, Expected]
	// Experiments are the experiments to run on every sample. None means the baseline.
	Experiments []mainloop.Experiment
	// ReplyTo is the mailbox for the results. Empty means Options.Results of the eval
	// loops.
	ReplyTo string
}

// Submit sends a request for every sample in every experiment, experiment after
// experiment, and returns how many there are. It retries a queue that is full or
// unavailable, with pauses, until ctx ends. Where the queue has a dedup window, a retry
// sends nothing twice; elsewhere Collect drops repeats.
// Codes: those of Mailbox.Send, and ErrInvalid without a dataset.
func Submit[In, Expected any](ctx context.Context, requests *mailbox.Mailbox[Request[In, Expected]], submission Submission[In, Expected]) (sent int, err error) {
	if submission.Dataset == nil || requests == nil {
		return 0, &mailbox.Error{Code: mailbox.ErrInvalid, Op: "submit", Detail: "no dataset or no mailbox"}
	}
	experiments := submission.Experiments
	if len(experiments) == 0 {
		experiments = []mainloop.Experiment{mainloop.Baseline()}
	}
	dedups := requests.Traits().DedupWindow > 0
	var batch []mailbox.Outgoing[Request[In, Expected]]
	for _, experiment := range experiments {
		for _, sample := range submission.Dataset.All() {
			request := newRequest(sample, experiment)
			message := mailbox.Outgoing[Request[In, Expected]]{Body: request, ReplyTo: submission.ReplyTo, CorrelationID: request.ID}
			if dedups {
				message.DedupKey = request.ID
			}
			if batch = append(batch, message); len(batch) < submitAtOnce {
				continue
			}
			if err := sendAll(ctx, requests, batch); err != nil {
				return sent, err
			}
			sent += len(batch)
			batch = batch[:0]
		}
	}
	if err := sendAll(ctx, requests, batch); err != nil {
		return sent, err
	}
	return sent + len(batch), nil
}

// sendAll sends a batch, and repeats it for the requests that were refused as full.
func sendAll[T any](ctx context.Context, to *mailbox.Mailbox[T], batch []mailbox.Outgoing[T]) error {
	for failures := 1; len(batch) > 0; failures++ {
		_, err := to.SendMessages(ctx, batch)
		if err == nil {
			return nil
		}
		var again []mailbox.Outgoing[T]
		for i, message := range batch {
			switch e := mailbox.ErrorAt(err, i); {
			case e == nil:
			case errors.Is(e, mailbox.ErrFull), errors.Is(e, mailbox.ErrUnavailable):
				again = append(again, message)
			default:
				return e
			}
		}
		batch = again
		_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
