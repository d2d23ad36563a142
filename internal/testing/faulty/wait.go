package faulty

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var waitFaults = []Saboteur{
	{Name: "waits-for-a-full-batch", Breaks: "RCV-2",
		What: "A waiting receive returns only when its batch is full.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			end := time.Now().Add(req.Wait)
			got, err := q.Receive(ctx, req)
			for err == nil && len(got) > 0 && len(got) < req.Max && time.Now().Before(end) {
				rest := req
				rest.Max, rest.Wait = req.Max-len(got), time.Until(end)
				var more []driver.Delivery
				more, err = q.Receive(ctx, rest)
				if got = append(got, more...); len(more) == 0 {
					break
				}
			}
			return got, unless(len(got) > 0, err)
		}}},
	{Name: "polls", Breaks: "RCV-2",
		What: "A waiting receive polls once a second, and is not woken.",
		on:   hooks{receive: pollEvery(time.Second, nil)}},
	{Name: "notices-at-the-end-of-the-wait", Breaks: "RCV-2",
		What: "A waiting receive returns new messages only at the end of its wait.",
		on:   hooks{receive: pollEvery(1<<62, nil)}},
	{Name: "does-not-wait", Breaks: "RCV-2",
		What: "A receive on an empty queue returns at once, whatever its wait.",
		on:   hooks{receive: alterRequest(func(_ *queue, req *driver.ReceiveRequest) { req.Wait = min(req.Wait, 0) })}},
	{Name: "waits-for-whole-seconds", Breaks: "RCV-2",
		What: "A wait is cut to whole seconds.",
		on: hooks{receive: alterRequest(func(_ *queue, req *driver.ReceiveRequest) {
			set(req.Wait > time.Second, &req.Wait, req.Wait.Truncate(time.Second))
		})}},
	{Name: "fails-when-empty", Breaks: "RCV-2",
		What: "A receive whose wait ends without a message returns an error.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			if len(got) == 0 && err == nil && req.Wait > 0 {
				err = &driver.Error{Code: driver.ErrNotFound, Op: "receive", Queue: q.name}
			}
			return got, err
		}}},
	{Name: "wakes-one-of-many", Breaks: "RCV-2",
		What: "A batch wakes one waiting receiver; the others get theirs a second later.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if turn := state[sync.Mutex](q); req.Wait > 0 && turn.TryLock() {
				defer turn.Unlock()
				return q.Receive(ctx, req)
			}
			return q.poll(ctx, req, time.Second)
		}}},

	{Name: "ignores-cancel", Breaks: "RCV-2",
		What: "A waiting receive ignores the end of its context.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			return q.Receive(context.WithoutCancel(ctx), req)
		}}},
	{Name: "strands-on-cancel", Breaks: "RCV-2",
		What: "A cancelled receive keeps waiting in the background, and leases a message that is never returned.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) (got []driver.Delivery, err error) {
			done := make(chan func(), 1)
			go func() {
				late, failure := q.Receive(context.WithoutCancel(ctx), req)
				done <- func() { got, err = late, failure }
			}()
			select {
			case finish := <-done:
				finish()
				return got, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}},
	{Name: "wraps-the-contexts-error", Breaks: "RCV-2",
		What: "A cancelled receive wraps the context's error.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("receive: %w", err)
			}
			return got, err
		}}},
	{Name: "ignores-close", Breaks: "RCV-2",
		What: "A closed handle still works.",
		on:   hooks{close: func(*queue) error { return nil }}},
	{Name: "counts-for-a-closed-handle", Breaks: "RCV-2",
		What: "A closed handle still counts messages.",
		on: hooks{stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
			stats, err := q.Stats(ctx)
			old := state[oldStats](q)
			if errors.Is(err, driver.ErrClosed) {
				stats, _ = old.get()
				return stats, nil
			}
			old.set(stats, err)
			return stats, err
		}}},
	{Name: "ignores-the-close-of-the-opener", Breaks: "RCV-2",
		What: "Handles of a closed opener still work.",
		on:   hooks{shut: func(*wrapper) error { return nil }}},
	{Name: "closes-all-handles", Breaks: "RCV-2",
		What: "Closing a handle closes all handles of the queue.",
		on: hooks{
			opened: func(q *queue) { state[table[driver.Queue, bool]](q).put(q.Queue, true) },
			close: func(q *queue) (err error) {
				for _, other := range state[table[driver.Queue, bool]](q).keys() {
					err = errors.Join(err, other.Close())
				}
				return err
			},
		}},
	{Name: "releases-leases-on-close", Breaks: "RCV-2",
		What: "Closing a handle ends the leases that were taken through it.",
		on: hooks{
			receive: afterReceive(func(q *queue, ctx context.Context, got []driver.Delivery) []driver.Delivery {
				for _, d := range got {
					state[heldContexts](q.own).put(d.Receipt, context.WithoutCancel(ctx))
				}
				return got
			}),
			ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
				for _, receipt := range receipts {
					state[heldContexts](q.own).drop(receipt)
				}
				return q.Ack(ctx, receipts)
			},
			close: func(q *queue) error {
				for _, receipt := range state[heldContexts](q.own).keys() {
					_ = q.release(state[heldContexts](q.own).at(receipt), receipt) // fails if the lease has ended
				}
				return q.Close()
			},
		}},
	{Name: "calls-closed-a-batch-error", Breaks: "RCV-2",
		What: "A settlement on a closed handle fails with a batch error, not as a call.",
		on: hooks{ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
			err := q.Ack(ctx, receipts)
			if !errors.Is(err, driver.ErrClosed) {
				return err
			}
			errs := make([]error, len(receipts))
			for i := range errs {
				errs[i] = err
			}
			return driver.NewBatchError(errs)
		}}},
	{Name: "wraps-the-contexts-error-of-a-nack", Breaks: "RCV-2", Also: []string{"ACK-3"},
		What: "A nack whose context has ended wraps the context's error.",
		on: hooks{nack: func(q *queue, ctx context.Context, nacks []driver.Nack) error {
			err := q.Nack(ctx, nacks)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("nack: %w", err)
			}
			return err
		}}},
}

// heldContexts are the contexts of deliveries that are held. Close has none.
type heldContexts = table[driver.Receipt, context.Context]
