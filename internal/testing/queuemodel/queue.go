package queuemodel

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Queue is a Model behind driver.Queue, on a clock that its owner chooses. It can wait,
// and is safe for concurrent use.
type Queue struct {
	driver.Unsupported
	Mu    sync.Mutex // guards Model
	Model *Model
	// Clock is the time since the model's start.
	Clock func() time.Duration
	// Sleep lets up to d pass, and returns the context's error if that ends.
	Sleep func(ctx context.Context, d time.Duration) error
	// Find returns another queue, or nil.
	Find func(name string) *Queue
}

var _ driver.Queue = (*Queue)(nil)

// At runs one operation of the model at the present time.
func At[R any](q *Queue, do func(now time.Duration) R) R {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return do(q.Clock())
}

func (q *Queue) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = At(q, func(now time.Duration) (err error) {
		sent, err = q.Model.Send(now, msgs)
		return err
	})
	return sent, err
}

func (q *Queue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	end := q.Clock() + req.Wait
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		deliveries, wake, err := q.tryReceive(req, end)
		done := wake <= 0 || len(deliveries) > 0
		if done || err != nil && !errors.Is(err, driver.ErrFull) {
			return deliveries, err
		}
		if err := q.Sleep(ctx, wake); err != nil {
			return nil, err
		}
	}
}

// tryReceive receives without waiting; wake is how long to wait, at most until end, before the
// next try.
func (q *Queue) tryReceive(req driver.ReceiveRequest, end time.Duration) (deliveries []driver.Delivery, wake time.Duration, err error) {
	err = At(q, func(now time.Duration) (err error) {
		deliveries, err = q.Model.Receive(now, req)
		wake = end - now
		if next, ok := q.Model.NextEvent(); ok {
			wake = min(wake, next-now)
		}
		return err
	})
	return deliveries, wake, err
}

func (q *Queue) Ack(_ context.Context, receipts []driver.Receipt) error {
	return At(q, func(now time.Duration) error { return q.Model.Ack(now, receipts) })
}

func (q *Queue) AckLate(_ context.Context, receipts []driver.Receipt) error {
	return At(q, func(now time.Duration) error { return q.Model.AckLate(now, receipts) })
}

func (q *Queue) ExtendLate(_ context.Context, extensions []driver.Extension) error {
	return At(q, func(now time.Duration) error { return q.Model.ExtendLate(now, extensions) })
}

// Move supports only named targets. Of two queues the one with the lesser name is locked first.
func (q *Queue) Move(_ context.Context, to string, limit int) (moved int, err error) {
	target := q.Find(to)
	if target == nil {
		return 0, q.Model.fail("move", driver.ErrNotFound, 0)
	}
	first, second := q, target
	if to < q.Model.name {
		first, second = target, q
	}
	first.Mu.Lock()
	defer first.Mu.Unlock()
	if second != first {
		second.Mu.Lock()
		defer second.Mu.Unlock()
	}
	return q.Model.Move(q.Clock(), target.Model, limit)
}

func (q *Queue) Nack(_ context.Context, nacks []driver.Nack) error {
	return At(q, func(now time.Duration) error { return q.Model.Nack(now, nacks) })
}

func (q *Queue) Extend(_ context.Context, extensions []driver.Extension) (granted []time.Duration, err error) {
	err = At(q, func(now time.Duration) error {
		granted, err = q.Model.Extend(now, extensions)
		return err
	})
	return granted, err
}

func (q *Queue) Purge(context.Context) (removed int, err error) {
	return At(q, q.Model.Purge), nil
}

func (q *Queue) Stats(context.Context) (driver.Stats, error) {
	return At(q, q.Model.Stats), nil
}

func (q *Queue) Pause(context.Context) error { return q.setPaused(true) }

func (q *Queue) Resume(context.Context) error { return q.setPaused(false) }

func (q *Queue) setPaused(paused bool) error {
	return At(q, func(now time.Duration) error {
		q.Model.SetPaused(now, paused)
		return nil
	})
}

func (q *Queue) Throttle(_ context.Context, group string, wait time.Duration) error {
	return At(q, func(now time.Duration) error { return q.Model.Throttle(now, group, wait) })
}

func (q *Queue) Edit(_ context.Context, id string, edit driver.Edit) (was driver.State, err error) {
	err = At(q, func(now time.Duration) (err error) {
		was, err = q.Model.Edit(now, id, edit)
		return err
	})
	return was, err
}

func (q *Queue) Traits() driver.Traits {
	return At(q, func(time.Duration) driver.Traits { return q.Model.Traits })
}

func (q *Queue) Close() error { return nil }

func (q *Queue) DeadLetter(_ context.Context, requests []driver.DeadLetterRequest) error {
	return At(q, func(now time.Duration) error { return q.Model.DeadLetter(now, requests) })
}

func (q *Queue) DeadLetters(context.Context) iter.Seq2[driver.DeadLetter, error] {
	return WithoutErrors(At(q, q.Model.DeadLetters))
}

func (q *Queue) Redrive(_ context.Context, ids []string, limit int) (moved int, err error) {
	err = At(q, func(now time.Duration) (err error) {
		moved, err = q.Model.Redrive(now, ids, limit)
		return err
	})
	return moved, err
}

func (q *Queue) Discard(_ context.Context, ids []string) (removed int, err error) {
	return At(q, func(now time.Duration) int { return q.Model.Discard(now, ids) }), nil
}

func (q *Queue) PurgeDead(context.Context) (removed int, err error) {
	return At(q, q.Model.PurgeDead), nil
}

func (q *Queue) Peek(_ context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	if query.Cursor != nil {
		return func(yield func(driver.Peeked, error) bool) {
			yield(driver.Peeked{}, &driver.Error{Code: driver.ErrUnsupported, Op: "peek", Field: "Cursor"})
		}
	}
	return WithoutErrors(At(q, func(now time.Duration) []driver.Peeked { return q.Model.Peek(now, query) }))
}

func (q *Queue) Configure(_ context.Context, config driver.Config) error {
	return At(q, func(now time.Duration) error {
		q.Model.Configure(now, config)
		return nil
	})
}

func WithoutErrors[E any](all []E) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for _, element := range all {
			if !yield(element, nil) {
				return
			}
		}
	}
}

// AllTraits are the traits of a model that can do everything.
var AllTraits = driver.Traits{
	Ordering:      driver.OrderingFIFO,
	ExactStats:    true,
	Groups:        true,
	DeadLetters:   true,
	Peek:          true,
	Move:          true,
	LateAck:       true,
	Pause:         true,
	Schedules:     true,
	Release:       true,
	DeliverAt:     true,
	TTL:           true,
	Priorities:    true,
	UniqueKeys:    true,
	GroupLimits:   true,
	Edit:          true,
	DedupWindow:   driver.DefaultDedupWindow,
	MaxBodyBytes:  driver.DefaultMaxBodyBytes,
	MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
	MaxBatch:      driver.DefaultMaxBatch,
	MaxDelay:      driver.DefaultMaxDelay,
	MaxVisibility: driver.DefaultMaxVisibility,
}
