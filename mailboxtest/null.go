package mailboxtest

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// Null is a backend whose queues drop messages and deliver nothing. Sends are checked
// against the usual limits and get ids; receives wait for their whole wait and return
// nothing; counts are zero; no receipt is valid. It remembers nothing, so it does not
// recognise a repeated dedup key.
//
// The zero Null is ready to use, and safe for concurrent use.
type Null struct{}

var _ driver.Opener = Null{}

// OpenQueue returns a queue that drops everything. It does not block. Codes:
// ErrInvalid for the name.
func (Null) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	return &nullQueue{name: name, closed: make(chan struct{})}, nil
}

type nullQueue struct {
	driver.Unsupported
	name      string
	closeOnce sync.Once
	closed    chan struct{}
}

func (q *nullQueue) Traits() driver.Traits {
	return driver.Traits{
		Ordering: driver.OrderingFIFO, Durability: driver.DurabilityNone,
		ExactStats: true, Groups: true, DedupWindow: driver.DefaultDedupWindow,
		MaxBodyBytes: driver.DefaultMaxBodyBytes, MaxBatch: driver.DefaultMaxBatch,
		MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
		DeliverAt: true, TTL: true, Priorities: true, MaxDelay: driver.DefaultMaxDelay, MaxVisibility: driver.DefaultMaxVisibility,
	}
}

func (q *nullQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := q.ready(ctx, "send"); err != nil {
		return nil, err
	}
	traits := q.Traits()
	sent, errs := make([]driver.Sent, len(msgs)), make([]error, len(msgs))
	for i := range msgs {
		if errs[i] = msgs[i].Check(&traits); errs[i] == nil {
			sent[i].ID = ulid.Make().String()
		}
	}
	return sent, driver.NewBatchError(errs)
}

func (q *nullQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := q.ready(ctx, "receive"); err != nil {
		return nil, err
	}
	traits := q.Traits()
	if _, err := req.Check(&traits); err != nil {
		return nil, err
	}
	patience := time.NewTimer(req.Wait)
	defer patience.Stop()
	select {
	case <-patience.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-q.closed:
		return nil, q.isClosed("receive")
	}
}

func (q *nullQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return q.expired(ctx, "ack", len(receipts))
}

func (q *nullQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	return q.expired(ctx, "nack", len(nacks))
}

func (q *nullQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	err := q.expired(ctx, "extend", len(extensions))
	return driver.GrantedAsAsked(extensions, err), err
}

func (q *nullQueue) Purge(ctx context.Context) (int, error) { return 0, q.ready(ctx, "purge") }

func (q *nullQueue) Stats(ctx context.Context) (driver.Stats, error) {
	return driver.Stats{}, q.ready(ctx, "stats")
}

func (q *nullQueue) Close() error {
	q.closeOnce.Do(func() { close(q.closed) })
	return nil
}

func (q *nullQueue) ready(ctx context.Context, op string) error {
	select {
	case <-q.closed:
		return q.isClosed(op)
	default:
		return ctx.Err()
	}
}

func (q *nullQueue) isClosed(op string) error {
	return &driver.Error{Code: driver.ErrClosed, Op: op, Queue: q.name}
}

// expired returns ErrReceiptExpired for n receipts: this queue never delivers.
func (q *nullQueue) expired(ctx context.Context, op string, n int) error {
	if err := q.ready(ctx, op); err != nil {
		return err
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = &driver.Error{Code: driver.ErrReceiptExpired, Op: op, Queue: q.name}
	}
	return driver.NewBatchError(errs)
}
