package rpcapi_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// rpcOpener is a backend over the generated client, so that the conformance suite
// can be run through the wire.
type rpcOpener struct {
	daemon *daemon
	// maker creates the queues that it names, user does not.
	maker, user mailboxv1connect.MailboxClient

	mu     sync.Mutex
	closed bool
	queues map[*rpcQueue]struct{}
}

func newRPCOpener(d *daemon, token interface{ Reveal() string }, options ...connect.ClientOption) *rpcOpener {
	client := func(existing string) mailboxv1connect.MailboxClient {
		header := http.Header{"Authorization": {"Bearer " + token.Reveal()}, "X-Mailbox-Existing": {existing}}
		all := append([]connect.ClientOption{connect.WithInterceptors(shows{more: header})}, options...)
		return mailboxv1connect.NewMailboxClient(d.client, "http://daemon", all...)
	}
	return &rpcOpener{daemon: d, maker: client("false"), user: client("true"), queues: make(map[*rpcQueue]struct{})}
}

func (o *rpcOpener) check(op string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return &driver.Error{Code: driver.ErrClosed, Op: op}
	}
	return nil
}

// driverError makes the driver's error of what a call returned: the context's
// own, or what the details say.
func driverError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if detail := detailOf(err); detail != nil {
		return positionDriverError(detail)
	}
	return &driver.Error{Code: driver.ErrUnavailable, Err: err}
}

// detailOf returns the ErrorDetail of an error, nil if it has none.
func detailOf(err error) *mailboxv1.ErrorDetail {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	for _, d := range e.Details() {
		if value, err := d.Value(); err == nil {
			if detail, ok := value.(*mailboxv1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}

func positionDriverError(d *mailboxv1.ErrorDetail) error {
	if d == nil {
		return nil
	}
	return wireerr.Error{
		Code: d.GetCode(), Kind: d.GetKind(), Reason: d.GetReason(), Op: d.GetOp(), Queue: d.GetTopic(), MessageID: d.GetMsgId(),
		Field: d.GetField(), Detail: d.GetDetail(), RetryAfter: span(d.GetRetryAfterMs()),
	}.Driver()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func span(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

func (o *rpcOpener) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := o.check("open"); err != nil {
		return nil, err
	}
	if !utf8.ValidString(name) {
		return nil, driver.CheckName(name)
	}
	if _, err := o.maker.Send(ctx, &mailboxv1.SendRequest{Topic: name, Keyless: true}); err != nil { // which makes it
		return nil, driverError(ctx, err)
	}
	q := &rpcQueue{opener: o, rpc: o.user, name: name, closing: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queues[q] = struct{}{}
	return q, nil
}

func (o *rpcOpener) ConfigureQueue(ctx context.Context, name string, c driver.Config) error {
	if err := o.check("configure"); err != nil {
		return err
	}
	if !utf8.ValidString(name) {
		return driver.CheckName(name)
	}
	if !utf8.ValidString(c.Annotation) { // which the protocol cannot carry
		return c.Validate()
	}
	_, err := o.maker.Configure(ctx, &mailboxv1.ConfigureRequest{Topic: name, Config: &mailboxv1.TopicConfig{
		Shards: int32(c.Shards), StrictGroups: c.StrictGroups, MaxAttempts: told[int32](c.MaxDeliveries), MaxMessages: told[int64](c.MaxMessages),
		MaxBytes: told[int64](c.MaxBytes), MaxInFlight: told[int64](c.MaxInFlight), MaxDead: told[int64](c.MaxDead),
		DedupWindowMs: toldSpan(c.DedupWindow), DedupMax: told[int64](c.DedupMax), MaxHoldMs: toldSpan(c.MaxHold), TtlMs: toldSpan(c.TTL), PriorityAgingMs: toldSpan(c.PriorityAging), GroupLimits: c.GroupLimits, DeadLetterTo: c.DeadLetterTo,
		FairGroups: &c.FairGroups, DropExpired: &c.DropExpired, Annotation: &c.Annotation,
		RetainReady: &mailboxv1.Retention{AgeMs: toldSpan(c.RetainReady.Age), Count: told[int64](c.RetainReady.Count)},
		RetainDead:  &mailboxv1.Retention{AgeMs: toldSpan(c.RetainDead.Age), Count: told[int64](c.RetainDead.Count)},
	}})
	return driverError(ctx, err)
}

// told is a setting in a request: absent if it is unset, and 0 if it is off.
func told[N int32 | int64](n int) *N {
	value := N(n)
	switch n {
	case 0:
		return nil
	case driver.Off:
		value = 0
	}
	return &value
}

func toldSpan(d time.Duration) *float64 {
	value := ms(d)
	switch d {
	case 0:
		return nil
	case driver.Off:
		value = 0
	}
	return &value
}

// known is a setting in an answer, where all of them are.
func known[N int32 | int64](n *N) int {
	if n != nil && *n == 0 {
		return driver.Off
	}
	if n == nil {
		return 0
	}
	return int(*n)
}

func knownSpan(value *float64) time.Duration {
	if value != nil && *value == 0 {
		return driver.Off
	}
	if value == nil {
		return 0
	}
	return span(*value)
}

func (o *rpcOpener) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	if err := o.check("configure"); err != nil {
		return driver.Config{}, err
	}
	r, err := o.user.Describe(ctx, &mailboxv1.DescribeRequest{Topic: name})
	if err != nil {
		return driver.Config{}, driverError(ctx, err)
	}
	c := r.GetConfig()
	retention := func(r *mailboxv1.Retention) driver.Retention {
		return driver.Retention{Age: knownSpan(r.AgeMs), Count: known(r.Count)}
	}
	return driver.Config{
		Shards: int(c.GetShards()), StrictGroups: c.GetStrictGroups(), MaxDeliveries: known(c.MaxAttempts), MaxMessages: known(c.MaxMessages),
		MaxBytes: known(c.MaxBytes), MaxInFlight: known(c.MaxInFlight), MaxDead: known(c.MaxDead), DedupWindow: knownSpan(c.DedupWindowMs),
		DedupMax: known(c.DedupMax), MaxHold: knownSpan(c.MaxHoldMs), TTL: knownSpan(c.TtlMs), PriorityAging: knownSpan(c.PriorityAgingMs), GroupLimits: c.GetGroupLimits(), DeadLetterTo: c.GetDeadLetterTo(),
		FairGroups: c.GetFairGroups(), DropExpired: c.GetDropExpired(), Annotation: c.GetAnnotation(),
		RetainReady: retention(c.GetRetainReady()), RetainDead: retention(c.GetRetainDead()),
	}, nil
}

func (o *rpcOpener) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := o.check("list"); err != nil {
			yield("", err)
			return
		}
		stream, err := o.user.Topics(ctx, &mailboxv1.TopicsRequest{})
		each(ctx, stream, err, (*mailboxv1.TopicsResponse).GetTopics, func(name string) string { return name }, yield)
	}
}

func (o *rpcOpener) DeleteQueue(ctx context.Context, name string) error {
	if err := o.check("delete"); err != nil {
		return err
	}
	_, err := o.user.Delete(ctx, &mailboxv1.DeleteRequest{Topic: name})
	return driverError(ctx, err)
}

func (o *rpcOpener) Ping(ctx context.Context) error {
	if err := o.check("ping"); err != nil {
		return err
	}
	_, err := o.user.Ping(ctx, &mailboxv1.PingRequest{})
	return driverError(ctx, err)
}

func (o *rpcOpener) Close() error {
	o.mu.Lock()
	o.closed = true
	queues := o.queues
	o.queues = nil
	o.mu.Unlock()
	for q := range queues {
		_ = q.Close()
	}
	o.daemon.stop()
	return nil
}

// each yields what a stream brings, chunk by chunk.
func each[R, M, E any](
	ctx context.Context, stream *connect.ServerStreamForClient[R], err error,
	chunk func(*R) []M, convert func(M) E, yield func(E, error) bool,
) {
	var none E
	if err != nil {
		yield(none, driverError(ctx, err))
		return
	}
	defer stream.Close()
	for stream.Receive() {
		for _, m := range chunk(stream.Msg()) {
			if !yield(convert(m), nil) {
				return
			}
		}
	}
	if stream.Err() != nil {
		yield(none, driverError(ctx, stream.Err()))
	}
}
