package drivertest

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// modelQueue is a Model behind driver.Queue, on a clock that its owner chooses. It can wait,
// and is safe for concurrent use.
type modelQueue struct {
	driver.Unsupported
	mu    sync.Mutex
	model *Model
	// clock is the time since the model's start.
	clock func() time.Duration
	// pause lets up to d pass, and returns the context's error if that ends.
	pause func(ctx context.Context, d time.Duration) error
	// find returns another queue, or nil.
	find func(name string) *modelQueue
}

var _ driver.Queue = (*modelQueue)(nil)

// at runs one operation of the model at the present time.
func at[R any](q *modelQueue, do func(now time.Duration) R) R {
	q.mu.Lock()
	defer q.mu.Unlock()
	return do(q.clock())
}

func (q *modelQueue) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = at(q, func(now time.Duration) (err error) {
		sent, err = q.model.Send(now, msgs)
		return err
	})
	return sent, err
}

func (q *modelQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	end := q.clock() + req.Wait
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		deliveries, wake, err := q.tryReceive(req, end)
		done := wake <= 0 || len(deliveries) > 0
		if done || err != nil && !errors.Is(err, driver.ErrFull) {
			return deliveries, err
		}
		if err := q.pause(ctx, wake); err != nil {
			return nil, err
		}
	}
}

// tryReceive receives without waiting; wake is how long to wait, at most until end, before the
// next try.
func (q *modelQueue) tryReceive(req driver.ReceiveRequest, end time.Duration) (deliveries []driver.Delivery, wake time.Duration, err error) {
	err = at(q, func(now time.Duration) (err error) {
		deliveries, err = q.model.Receive(now, req)
		wake = end - now
		if next, ok := q.model.NextEvent(); ok {
			wake = min(wake, next-now)
		}
		return err
	})
	return deliveries, wake, err
}

func (q *modelQueue) Ack(_ context.Context, receipts []driver.Receipt) error {
	return at(q, func(now time.Duration) error { return q.model.Ack(now, receipts) })
}

func (q *modelQueue) AckLate(_ context.Context, receipts []driver.Receipt) error {
	return at(q, func(now time.Duration) error { return q.model.AckLate(now, receipts) })
}

func (q *modelQueue) ExtendLate(_ context.Context, extensions []driver.Extension) error {
	return at(q, func(now time.Duration) error { return q.model.ExtendLate(now, extensions) })
}

// Move supports only named targets. Of two queues the one with the lesser name is locked first.
func (q *modelQueue) Move(_ context.Context, to string, limit int) (moved int, err error) {
	target := q.find(to)
	if target == nil {
		return 0, q.model.fail("move", driver.ErrNotFound, 0)
	}
	first, second := q, target
	if to < q.model.name {
		first, second = target, q
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	if second != first {
		second.mu.Lock()
		defer second.mu.Unlock()
	}
	return q.model.Move(q.clock(), target.model, limit)
}

func (q *modelQueue) Nack(_ context.Context, nacks []driver.Nack) error {
	return at(q, func(now time.Duration) error { return q.model.Nack(now, nacks) })
}

func (q *modelQueue) Extend(_ context.Context, extensions []driver.Extension) (granted []time.Duration, err error) {
	err = at(q, func(now time.Duration) error {
		granted, err = q.model.Extend(now, extensions)
		return err
	})
	return granted, err
}

func (q *modelQueue) Purge(context.Context) (removed int, err error) {
	return at(q, q.model.Purge), nil
}

func (q *modelQueue) Pause(context.Context) error { return q.setPaused(true) }

func (q *modelQueue) Resume(context.Context) error { return q.setPaused(false) }

func (q *modelQueue) setPaused(paused bool) error {
	return at(q, func(now time.Duration) error {
		q.model.SetPaused(now, paused)
		return nil
	})
}

func (q *modelQueue) Stats(context.Context) (driver.Stats, error) {
	return at(q, q.model.Stats), nil
}

func (q *modelQueue) Traits() driver.Traits {
	return at(q, func(time.Duration) driver.Traits { return q.model.Traits() })
}

func (q *modelQueue) Close() error { return nil }

func (q *modelQueue) DeadLetter(_ context.Context, requests []driver.DeadLetterRequest) error {
	return at(q, func(now time.Duration) error { return q.model.DeadLetter(now, requests) })
}

func (q *modelQueue) DeadLetters(context.Context) iter.Seq2[driver.DeadLetter, error] {
	return withoutErrors(at(q, q.model.DeadLetters))
}

func (q *modelQueue) Redrive(_ context.Context, ids []string, limit int) (moved int, err error) {
	err = at(q, func(now time.Duration) (err error) {
		moved, err = q.model.Redrive(now, ids, limit)
		return err
	})
	return moved, err
}

func (q *modelQueue) Discard(_ context.Context, ids []string) (removed int, err error) {
	return at(q, func(now time.Duration) int { return q.model.Discard(now, ids) }), nil
}

func (q *modelQueue) PurgeDead(context.Context) (removed int, err error) {
	return at(q, q.model.PurgeDead), nil
}

func (q *modelQueue) Peek(_ context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return withoutErrors(at(q, func(now time.Duration) []driver.Peeked { return q.model.Peek(now, query) }))
}

func (q *modelQueue) configure(_ context.Context, config driver.Config) error {
	return at(q, func(now time.Duration) error {
		q.model.Configure(now, config)
		return nil
	})
}

func withoutErrors[E any](all []E) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for _, element := range all {
			if !yield(element, nil) {
				return
			}
		}
	}
}
