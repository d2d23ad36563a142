package dynamoreply

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/sqsbox/internal/owned"
)

// Pauses between attempts double from retryMin to retryMax. Each lasts a random
// part of that, so that clients that were throttled together do not retry together.
const (
	retryMin = 50 * time.Millisecond
	retryMax = time.Second
)

// A request names the operation, and the slot it is for, in errors.
type request struct {
	op, id string
	// once: an attempt without a response must not be repeated, because it may
	// have been carried out.
	once bool
}

// call sends a request, and repeats it up to Options.Attempts times while a
// repetition may help. A condition that did not hold is returned as the client's
// own error, the end of ctx as the context's own; all other errors are a
// *driver.Error.
func call[In, Out any](
	ctx context.Context, s *store, r request,
	do func(context.Context, *In, ...func(*dynamodb.Options)) (*Out, error), in *In,
) (*Out, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		out, err := try(ctx, s, do, in)
		if err == nil {
			return out, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		kind := classify(err)
		if kind == conditionFailed {
			return nil, err
		}
		again := kind == throttled || kind == unanswered && !r.once
		if !again || attempt >= s.attempts {
			return nil, s.newError(r, kind, err)
		}
		if err := backoff.Pause(ctx, rand.N(min(retryMin<<(attempt-1), retryMax))); err != nil {
			return nil, err
		}
	}
}

// try sends a request once.
func try[In, Out any](
	ctx context.Context, s *store,
	do func(context.Context, *In, ...func(*dynamodb.Options)) (*Out, error), in *In,
) (*Out, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return do(ctx, in, s.perCall)
}

// prepareCall configures one request: no retries by the SDK, a body that stays
// readable until the response is read, and a step that tells the clock
// DynamoDB's time.
func (s *store) prepareCall(o *dynamodb.Options) {
	o.Retryer = aws.NopRetryer{}
	o.HTTPClient = owned.Bodies(o.HTTPClient)
	o.APIOptions = append(o.APIOptions[:len(o.APIOptions):len(o.APIOptions)], func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(timekeeper{s.clock}, middleware.After)
	})
}

// timekeeper passes the Date of every response, refusals included, to the clock.
type timekeeper struct{ clock *clock }

// ID is the name of this step in the client's stack.
func (timekeeper) ID() string { return "mailbox.Timekeeper" }

// HandleDeserialize runs the request and observes the Date of its response.
func (t timekeeper) HandleDeserialize(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	sent := time.Now()
	out, metadata, err := next.HandleDeserialize(ctx, in)
	if response, ok := out.RawResponse.(*smithyhttp.Response); ok && response != nil {
		if told, dateErr := http.ParseTime(response.Header.Get("Date")); dateErr == nil {
			t.clock.observe(sent, time.Now(), told)
		}
	}
	return out, metadata, err
}
