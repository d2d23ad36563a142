package evalloop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/worker"
)

// Options configure an EvalLoop. The zero value, and nil, are the defaults.
type Options[In, Expected any] struct {
	// Worker configures the loop below: concurrency, leases, retries, dead
	// letters, hooks. The eval loop sets its Notifier and its Check. Without a dead-letter policy a
	// failed sample is reported at once; with one it is retried first.
	Worker worker.Options[Request[In, Expected]]
	// Results is where the results of requests without a reply address go. Nil drops
	// them.
	Results *mailbox.Mailbox[Result]
}

// An EvalLoop runs an agent on the samples of a mailbox and scores the answers. Make
// one with New. It has the methods of worker.Loop, and so is a worker.Member.
type EvalLoop[In, Out, Expected any] struct {
	*worker.Loop[Request[In, Expected]]

	agent    *mainloop.MainLoop[In, Out]
	evaluate Evaluator[Out, Expected]
	options  Options[In, Expected]
}

// New returns an eval loop. It does no I/O, and does not check the options: Run does, with
// ErrInvalid without an agent or an evaluator. The caller closes the mailboxes. The agent's own mailbox is not used, and may
// be nil.
func New[In, Out, Expected any](requests *mailbox.Mailbox[Request[In, Expected]], agent *mainloop.MainLoop[In, Out], evaluate Evaluator[Out, Expected], options *Options[In, Expected]) *EvalLoop[In, Out, Expected] {
	l := &EvalLoop[In, Out, Expected]{agent: agent, evaluate: evaluate}
	if options != nil {
		l.options = *options
	}
	l.options.Worker.Notifier, l.options.Worker.Check = notifier[In, Out, Expected]{l}, l.check
	l.Loop = worker.New(requests, worker.Serve(l.serve, l.serveOptions()), &l.options.Worker)
	return l
}

func (l *EvalLoop[In, Out, Expected]) serveOptions() *worker.ServeOptions[Result] {
	return &worker.ServeOptions[Result]{To: l.options.Results}
}

// check returns an error if the loop cannot run.
func (l *EvalLoop[In, Out, Expected]) check() error {
	invalid := func(field string) error {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "run", Queue: l.Name(), Field: field, Detail: "is nil"}
	}
	switch {
	case l.agent == nil:
		return invalid("agent")
	case l.evaluate == nil:
		return invalid("evaluate")
	}
	return nil
}

// serve is the handler.
func (l *EvalLoop[In, Out, Expected]) serve(ctx context.Context, message *mailbox.Message[Request[In, Expected]]) (Result, error) {
	result, err := l.Try(ctx, message.Body)
	if err == nil {
		return result, nil
	}
	if result.RequestID == "" {
		result.RequestID = message.ID
	}
	// Wrapped with fmt, so that mailbox.ErrorType skips the wrapper.
	err = fmt.Errorf("%w%w", err, note{result})
	if mainloop.Final(err) {
		return result, worker.Permanent(err)
	}
	return result, err
}

// Try runs the agent on one sample and scores it, without a mailbox. The result has
// the error too, if there is one. Codes: those of the agent and of the evaluator, and
// ErrInvalid for a score outside 0…1.
func (l *EvalLoop[In, Out, Expected]) Try(ctx context.Context, request Request[In, Expected]) (Result, error) {
	if err := l.check(); err != nil {
		return Result{}, err
	}
	asked := mainloop.NewRequest(request.Sample.Input)
	asked.Experiment = &request.Experiment
	if request.ID != "" {
		asked.ID = request.ID // so that the agent's logs show the request
	}
	began := time.Now()
	answered, session, err := l.agent.Execute(ctx, asked)
	latency := time.Since(began)
	result := Result{
		RequestID: request.ID, SampleID: request.Sample.ID, Experiment: request.Experiment.Name,
		LatencyMS: float64(latency) / float64(time.Millisecond), SessionID: answered.SessionID, Usage: answered.Usage,
	}
	if err == nil {
		result.Score, err = l.evaluate(ctx, Trial[Out, Expected]{
			Output: answered.Output, Expected: request.Sample.Expected, Session: session, Latency: latency,
		})
	}
	if err == nil {
		result.Score, err = result.Score.check()
	}
	result.CompletedAt = time.Now().UTC()
	if err != nil {
		result.fail(err)
	}
	return result, err
}

// notifier sends failures as results.
type notifier[In, Out, Expected any] struct {
	loop *EvalLoop[In, Out, Expected]
}

// Waits reports whether the result has an address.
func (n notifier[In, Out, Expected]) Waits(message *mailbox.Message[Request[In, Expected]]) bool {
	return message.ExpectsReply() || n.loop.options.Results != nil
}

// Fail sends a result with the error.
func (n notifier[In, Out, Expected]) Fail(ctx context.Context, message *mailbox.Message[Request[In, Expected]], failure error) error {
	request := &message.Body
	result := Result{RequestID: request.ID, SampleID: request.Sample.ID, Experiment: request.Experiment.Name}
	if noted, ok := errors.AsType[note](failure); ok {
		result = noted.result
	}
	result.fail(failure)
	return worker.Answer(ctx, message, result, n.loop.serveOptions())
}

// A note carries the result of a failed attempt to the notifier, inside the error. It
// adds nothing to the text.
type note struct{ result Result }

// Error makes note an error, so that an error can wrap it.
func (note) Error() string { return "" }
