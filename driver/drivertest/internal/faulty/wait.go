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
	{
		Name: "waits-for-a-full-batch", Breaks: "RCV-2",
		What: "A waiting receive returns only when its batch is full.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return waitsForMore{q} }),
	},
	{
		Name: "polls", Breaks: "RCV-2",
		What: "A waiting receive polls once a second, and is not woken.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return polls{q, time.Second} }),
	},
	{
		Name: "notices-at-the-end-of-the-wait", Breaks: "RCV-2",
		What: "A waiting receive returns new messages only at the end of its wait.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return polls{q, 1 << 62} }),
	},
	{
		Name: "does-not-wait", Breaks: "RCV-2",
		What: "A receive on an empty queue returns at once, whatever its wait.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) { req.Wait = min(req.Wait, 0) }}
		}),
	},
	{
		Name: "waits-for-whole-seconds", Breaks: "RCV-2",
		What: "A wait is cut to whole seconds.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) {
				if req.Wait > time.Second {
					req.Wait = req.Wait.Truncate(time.Second)
				}
			}}
		}),
	},
	{
		Name: "fails-when-empty", Breaks: "RCV-2",
		What: "A receive whose wait ends without a message returns an error.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return failsWhenEmpty{q} }),
	},
	{
		Name: "wakes-one-of-many", Breaks: "RCV-2",
		What: "A batch wakes one waiting receiver; the others get theirs a second later.",
		Wrap: perQueue(func(q passThrough, turn *sync.Mutex) driver.Queue { return wakesOne{q, turn} }),
	},

	{
		Name: "ignores-cancel", Breaks: "RCV-2",
		What: "A waiting receive ignores the end of its context.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return ignoresCancel{q} }),
	},
	{
		Name: "strands-on-cancel", Breaks: "RCV-2",
		What: "A cancelled receive keeps waiting in the background, and leases a message that is never returned.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return strandsOnCancel{q} }),
	},
	{
		Name: "wraps-the-contexts-error", Breaks: "RCV-2",
		What: "A cancelled receive wraps the context's error.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return wrapsContextError{q} }),
	},
	{
		Name: "ignores-close", Breaks: "RCV-2",
		What: "A closed handle still works.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return ignoresClose{q} }),
	},
	{
		Name: "counts-for-a-closed-handle", Breaks: "RCV-2",
		What: "A closed handle still counts messages.",
		Wrap: perQueue(func(q passThrough, old *oldStats) driver.Queue { return countsClosed{q, old} }),
	},
	{
		Name: "ignores-the-close-of-the-opener", Breaks: "RCV-2",
		What: "Handles of a closed opener still work.",
		Wrap: perOpener(func(b *wrapper) backend { return keepsOpen{b} }),
	},
	{
		Name: "closes-all-handles", Breaks: "RCV-2",
		What: "Closing a handle closes all handles of the queue.",
		Wrap: perQueue(func(q passThrough, open *table[driver.Queue, bool]) driver.Queue {
			open.put(q.Queue, true)
			return closesAllHandles{q, open}
		}),
	},
	{
		Name: "releases-leases-on-close", Breaks: "RCV-2",
		What: "Closing a handle ends the leases that were taken through it.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return releasesOnClose{q, new(table[driver.Receipt, context.Context])}
		}),
	},
	{
		Name: "calls-closed-a-batch-error", Breaks: "RCV-2",
		What: "A settlement on a closed handle fails with a batch error, not as a call.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return failsByPosition{q} }),
	},
	{
		Name: "wraps-the-contexts-error-of-a-nack", Breaks: "RCV-2", Also: []string{"ACK-3"},
		What: "A nack whose context has ended wraps the context's error.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return wrapsNackError{q} }),
	},
}

type waitsForMore struct{ passThrough }

func (q waitsForMore) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	end := time.Now().Add(req.Wait)
	got, err := q.Queue.Receive(ctx, req)
	for err == nil && len(got) > 0 && len(got) < req.Max && time.Now().Before(end) {
		rest := req
		rest.Max, rest.Wait = req.Max-len(got), time.Until(end)
		var more []driver.Delivery
		more, err = q.Queue.Receive(ctx, rest)
		if got = append(got, more...); len(more) == 0 {
			break
		}
	}
	if len(got) > 0 {
		err = nil
	}
	return got, err
}

type polls struct {
	passThrough
	every time.Duration
}

func (q polls) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	look := req
	look.Wait = min(req.Wait, 0)
	for end := time.Now().Add(req.Wait); ; {
		got, err := q.Queue.Receive(ctx, look)
		rest := time.Until(end)
		if len(got) > 0 || rest <= 0 || err != nil && !errors.Is(err, driver.ErrFull) {
			return got, err
		}
		select {
		case <-time.After(min(q.every, rest)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type failsWhenEmpty struct{ passThrough }

func (q failsWhenEmpty) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if len(got) == 0 && err == nil && req.Wait > 0 {
		err = &driver.Error{Code: driver.ErrNotFound, Op: "receive", Queue: q.name}
	}
	return got, err
}

type wakesOne struct {
	passThrough
	turn *sync.Mutex
}

func (q wakesOne) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if req.Wait > 0 && q.turn.TryLock() {
		defer q.turn.Unlock()
		return q.Queue.Receive(ctx, req)
	}
	return polls{q.passThrough, time.Second}.Receive(ctx, req)
}

type ignoresCancel struct{ passThrough }

func (q ignoresCancel) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	return q.Queue.Receive(context.WithoutCancel(ctx), req)
}

type strandsOnCancel struct{ passThrough }

func (q strandsOnCancel) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	type result struct {
		got []driver.Delivery
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := q.Queue.Receive(context.WithoutCancel(ctx), req)
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		return r.got, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type wrapsContextError struct{ passThrough }

func (q wrapsContextError) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("receive: %w", err)
	}
	return got, err
}

type wrapsNackError struct{ passThrough }

func (q wrapsNackError) Nack(ctx context.Context, nacks []driver.Nack) error {
	err := q.Queue.Nack(ctx, nacks)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("nack: %w", err)
	}
	return err
}

type ignoresClose struct{ passThrough }

func (q ignoresClose) Close() error { return nil }

type countsClosed struct {
	passThrough
	*oldStats
}

func (q countsClosed) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if errors.Is(err, driver.ErrClosed) {
		return q.stats, nil
	}
	q.stats = stats
	return stats, err
}

type keepsOpen struct{ *wrapper }

func (keepsOpen) Close() error { return nil }

type closesAllHandles struct {
	passThrough
	open *table[driver.Queue, bool]
}

func (q closesAllHandles) Close() error {
	var errs []error
	for _, other := range q.open.keys() {
		errs = append(errs, other.Close())
	}
	return errors.Join(errs...)
}

type releasesOnClose struct {
	passThrough
	held *table[driver.Receipt, context.Context] // Close has no context
}

func (q releasesOnClose) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.held.put(d.Receipt, context.WithoutCancel(ctx))
	}
	return got, err
}

func (q releasesOnClose) Ack(ctx context.Context, acked []driver.Receipt) error {
	for _, receipt := range acked {
		q.held.drop(receipt)
	}
	return q.Queue.Ack(ctx, acked)
}

func (q releasesOnClose) Close() error {
	for _, receipt := range q.held.keys() {
		ctx, _ := q.held.get(receipt)
		_, _ = q.Queue.Extend(ctx, []driver.Extension{{Receipt: receipt}}) // fails if the lease has ended
	}
	return q.Queue.Close()
}

type failsByPosition struct{ passThrough }

func (q failsByPosition) Ack(ctx context.Context, acked []driver.Receipt) error {
	err := q.Queue.Ack(ctx, acked)
	if !errors.Is(err, driver.ErrClosed) {
		return err
	}
	errs := make([]error, len(acked))
	for i := range errs {
		errs[i] = err
	}
	return driver.NewBatchError(errs)
}
