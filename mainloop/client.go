package mainloop

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/reply"
)

// ClientOptions configure a Client. The zero value, and nil, are the defaults.
type ClientOptions[Out any] struct {
	// Codec decodes results. It must match that of the loops. Nil means JSON.
	Codec mailbox.Codec[Result[Out]]
	// TTL is the time for a request, retries included, and for reading its result. 0
	// means one hour.
	TTL time.Duration
}

// defaultTTL is longer than that of package reply: models are slow, and failed requests are
// retried after minutes.
const defaultTTL = time.Hour

// A Client sends requests to main loops and gets their results. Make one with
// NewClient. It is safe for concurrent use.
type Client[Req, Out any] struct {
	replies *reply.Client[Request[Req], Result[Out]]
}

// NewClient returns a client that sends to requests and finds results in store,
// which the mailbox of the loops must use too (mailbox.Options.Replies). The caller
// closes both. It does no I/O.
func NewClient[Req, Out any](requests *mailbox.Mailbox[Request[Req]], store driver.ReplyStore, options *ClientOptions[Out]) *Client[Req, Out] {
	o := reply.Options[Result[Out]]{TTL: defaultTTL}
	if options != nil {
		o.Codec = options.Codec
		if options.TTL != 0 {
			o.TTL = options.TTL
		}
	}
	return &Client[Req, Out]{replies: reply.NewClient[Request[Req], Result[Out]](requests, store, &o)}
}

// Send sends a request and returns the future of its result. The options are those
// of Mailbox.Send; the correlation id is the request's id. Codes: those of
// reply.Client.Send.
func (c *Client[Req, Out]) Send(ctx context.Context, request Request[Req], options ...mailbox.SendOption) (*reply.Future[Result[Out]], error) {
	return c.replies.Send(ctx, request, append(options[:len(options):len(options)], mailbox.WithCorrelationID(request.ID))...)
}

// Call sends a request and waits for its result. A failed result is also returned as
// an error, a *mailbox.Failure. When ctx ends, the request is cancelled, so that no
// loop starts it. Codes: those of reply.Client.Call.
func (c *Client[Req, Out]) Call(ctx context.Context, request Request[Req], options ...mailbox.SendOption) (Result[Out], error) {
	result, err := c.replies.Call(ctx, request, append(options[:len(options):len(options)], mailbox.WithCorrelationID(request.ID))...)
	if err != nil {
		return result, err
	}
	return result, result.Err()
}

// Responses opens the mailbox for Options.Responses and Await. Codes: those of
// mailbox.Open.
func Responses[Out any](ctx context.Context, backend driver.Opener, name string, codec mailbox.Codec[Result[Out]]) (*mailbox.Mailbox[reply.Result[Result[Out]]], error) {
	return mailbox.Open(ctx, backend, name, &mailbox.Options[reply.Result[Result[Out]]]{Codec: reply.Results(codec)})
}

// Await returns the result of one request from a mailbox that all clients share, and
// puts back the results of others. It blocks until the result arrives or ctx ends. A
// failed result is also returned as an error, a *mailbox.Failure. Codes: those of
// reply.Await.
func Await[Out any](ctx context.Context, responses *mailbox.Mailbox[reply.Result[Result[Out]]], requestID string) (Result[Out], error) {
	result, err := reply.Await(ctx, responses, requestID)
	if err != nil {
		return result, err
	}
	return result, result.Err()
}
