package evalloop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// defaultTimeout is the default of CollectOptions.Timeout.
const defaultTimeout = 5 * time.Minute

const (
	// collectWait bounds one receive. A new result wakes it.
	collectWait = 20 * time.Second
	// collectMax bounds the results of one receive.
	collectMax = 100
)

// CollectOptions configure Collect. The zero value, and nil, are the defaults.
type CollectOptions struct {
	// Timeout bounds the whole wait. 0 means 5 minutes, a negative value no
	// limit but the context.
	Timeout time.Duration
	// Progress is called after each receive, with how many results there are and how
	// many are expected. Bar makes one for a terminal. Nil means no call.
	Progress func(done, total int)
}

// Collect receives the results of n different requests from a mailbox that holds
// nothing else, and returns the report. It drops a second result for the same request.
// It blocks until it has n, or ctx or the timeout ends; then it returns a report of
// the results so far, and an error. It retries backend errors. Codes: ErrTimeout,
// ErrClosed, ErrNotFound; and the context's own error.
func Collect(ctx context.Context, results *mailbox.Mailbox[Result], n int, options *CollectOptions) (*Report, error) {
	var o CollectOptions
	if options != nil {
		o = *options
	}
	if results == nil {
		return &Report{}, &mailbox.Error{Code: mailbox.ErrInvalid, Op: "collect", Field: "results", Detail: "is nil"}
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, &mailbox.Error{
			Code: mailbox.ErrTimeout, Op: "collect", Queue: results.Name(), Detail: fmt.Sprintf("after %v", o.Timeout),
		})
		defer cancel()
	}
	c := collection{results: results, seen: make(map[string]bool), report: &Report{}}
	if o.Progress != nil {
		o.Progress(0, n)
	}
	for failures := 0; len(c.report.Results) < n; {
		came, err := c.take(ctx, n-len(c.report.Results))
		if came > 0 && o.Progress != nil {
			o.Progress(len(c.report.Results), n)
		}
		switch {
		case err == nil:
			failures = 0
			continue
		case ctx.Err() != nil:
			return c.report, context.Cause(ctx)
		case errors.Is(err, mailbox.ErrClosed), errors.Is(err, mailbox.ErrNotFound), errors.Is(err, mailbox.ErrInvalid):
			return c.report, err
		}
		failures++
		_ = backoff.Pause(ctx, backoff.AfterError(failures, err))
	}
	return c.report, nil
}

// A collection is a report that is being collected.
type collection struct {
	results *mailbox.Mailbox[Result]
	seen    map[string]bool
	report  *Report
}

// take receives up to a number of results and acks them. A result whose ack fails
// comes back and is dropped as a repeat.
func (c *collection) take(ctx context.Context, most int) (came int, err error) {
	messages, err := c.results.Receive(ctx, mailbox.WithMax(min(most, collectMax)), mailbox.WithWait(collectWait))
	if err != nil {
		return 0, err
	}
	for _, message := range messages {
		id := message.Body.RequestID
		if id == "" {
			id = message.ID
		}
		if !c.seen[id] {
			c.seen[id] = true
			c.report.Results = append(c.report.Results, message.Body)
			came++
		}
	}
	if err := mailbox.AckAll(ctx, messages...); err != nil && !errors.Is(err, mailbox.ErrReceiptExpired) {
		return came, err
	}
	return came, nil
}
