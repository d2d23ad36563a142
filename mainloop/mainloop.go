package mainloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/worker"
)

// defaultMaxTurns is the default of Options.MaxTurns.
const defaultMaxTurns = 10

// Prepare makes the prompt of a request. It may replace the session of the run, and
// register cleanups. An error fails the request; worker.Permanent makes that final.
type Prepare[Req any] func(ctx context.Context, run *Run[Req]) (*Prompt, error)

// Options configure a MainLoop. The zero value, and nil, are the defaults.
type Options[Req, Out any] struct {
	// Worker configures the loop below: concurrency, leases, retries, dead
	// letters, hooks. The main loop sets its Notifier and its Check. Its Timeout bounds one attempt
	// at a request, and does not make the failure final.
	Worker worker.Options[Request[Req]]
	// Responses is where the results of requests without a reply address go, with
	// the id of the request as their correlation id. Nil drops them.
	Responses *mailbox.Mailbox[Result[Out]]
	// Codec encodes results for reply addresses. It must match that of the clients.
	// Nil means JSON.
	Codec mailbox.Codec[Result[Out]]
	// Resources are shared by all runs. The caller closes them. Nil means none.
	Resources *Resources
	// Budget is the budget of requests without one.
	Budget Budget
	// MaxTurns bounds the calls of the model for one request. 0 means 10.
	MaxTurns int
	// Parse makes the output from the model's answer. Nil means the text for a string
	// Out, and JSON for any other.
	Parse func(response Response) (Out, error)
	// Finalize gets the output of a request and may replace it. An error fails the
	// request. Nil leaves outputs unchanged.
	Finalize func(ctx context.Context, run *Run[Req], output Out) (Out, error)
	// WorkerID names this process in results. Empty means host and process id.
	WorkerID string
}

// A MainLoop answers the requests of a mailbox with a model. Make one with New. It has
// the methods of worker.Loop, and so is a worker.Member.
type MainLoop[Req, Out any] struct {
	*worker.Loop[Request[Req]]

	adapter Adapter
	prepare Prepare[Req]
	options Options[Req, Out]
}

// New returns a main loop. It does no I/O, and does not check the options: Run does, with
// ErrInvalid for a wrong one. The caller closes the mailbox.
func New[Req, Out any](requests *mailbox.Mailbox[Request[Req]], adapter Adapter, prepare Prepare[Req], options *Options[Req, Out]) *MainLoop[Req, Out] {
	l := &MainLoop[Req, Out]{adapter: adapter, prepare: prepare}
	if options != nil {
		l.options = *options
	}
	o := &l.options
	if o.MaxTurns == 0 {
		o.MaxTurns = defaultMaxTurns
	}
	if o.Parse == nil {
		o.Parse = parse[Out]
	}
	o.Worker.Notifier, o.Worker.Check = notifier[Req, Out]{l}, l.check
	l.Loop = worker.New(requests, worker.Serve(l.serve, l.serveOptions()), &o.Worker)
	return l
}

// processID returns host and process id, the default WorkerID.
var processID = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
})

func (l *MainLoop[Req, Out]) workerID() string {
	if l.options.WorkerID != "" {
		return l.options.WorkerID
	}
	return processID()
}

func (l *MainLoop[Req, Out]) serveOptions() *worker.ServeOptions[Result[Out]] {
	return &worker.ServeOptions[Result[Out]]{Codec: l.options.Codec, To: l.options.Responses}
}

// Execute runs one request without a mailbox. The result has the error too, if there
// is one; the session is nil only if an option is wrong.
func (l *MainLoop[Req, Out]) Execute(ctx context.Context, request Request[Req]) (Result[Out], *Session, error) {
	if err := l.check(); err != nil {
		return Result[Out]{}, nil, err
	}
	if request.ID == "" {
		request.ID = newID()
	}
	return l.execute(ctx, request, RunContext{
		RunID: newID(), RequestID: request.ID, Attempt: 1, WorkerID: l.workerID(),
	})
}

// check returns an error if the loop cannot run.
func (l *MainLoop[Req, Out]) check() error {
	invalid := func(field, detail string) error {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: "run", Queue: l.Name(), Field: field, Detail: detail}
	}
	switch {
	case l.adapter == nil:
		return invalid("adapter", "is nil")
	case l.prepare == nil:
		return invalid("prepare", "is nil")
	case l.options.MaxTurns < 0:
		return invalid("MaxTurns", fmt.Sprintf("%d is negative", l.options.MaxTurns))
	}
	return l.options.Budget.check()
}

// serve is the handler.
func (l *MainLoop[Req, Out]) serve(ctx context.Context, message *mailbox.Message[Request[Req]]) (result Result[Out], err error) {
	request := message.Body
	if request.ID == "" {
		request.ID = message.ID
	}
	attempt := RunContext{
		RunID: newID(), RequestID: request.ID, Attempt: message.Deliveries, WorkerID: l.workerID(),
		TraceParent: message.Attributes["traceparent"],
	}
	err = worker.Recovery[Request[Req]]()(func(ctx context.Context, _ *mailbox.Message[Request[Req]]) error {
		result, _, err = l.execute(ctx, request, attempt)
		return err
	})(ctx, message)
	if err == nil {
		return result, nil
	}
	result.RequestID, result.Run = request.ID, attempt // also if it panicked
	return result, l.outcome(message, note[Out]{result}.on(err))
}

// outcome returns how to settle a request that failed with err.
func (l *MainLoop[Req, Out]) outcome(message *mailbox.Message[Request[Req]], err error) error {
	if Final(err) {
		return worker.Permanent(err)
	}
	failed, ok := errors.AsType[*AdapterError](err)
	if ok && failed.RetryAfter > 0 && l.options.Worker.DeadLetters != nil {
		return worker.RetryAfter(max(failed.RetryAfter, l.backoff(message.Deliveries)), err)
	}
	return err
}

// backoff returns how long a failed request waits, at least as long as the server asks
// for.
func (l *MainLoop[Req, Out]) backoff(deliveries int) time.Duration {
	if l.options.Worker.Backoff != nil {
		return l.options.Worker.Backoff(deliveries)
	}
	return worker.DefaultBackoff(deliveries)
}
