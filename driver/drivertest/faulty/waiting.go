package faulty

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var sleepers = []Saboteur{
	{
		Name: "waits-for-a-full-batch", Breaks: "RCV-2",
		What: "A receive that waits goes on waiting until its batch is full.",
		Wrap: perHandle(func(q passing) handle { return waitsForMore{q} }),
	},
	{
		Name: "polls", Breaks: "RCV-2",
		What: "A receive that waits looks once a second, and nothing wakes it.",
		Wrap: perHandle(func(q passing) handle { return polls{q, time.Second} }),
	},
	{
		Name: "notices-at-the-end-of-the-wait", Breaks: "RCV-2",
		What: "A receive that waits sees what came meanwhile only when its wait is over.",
		Wrap: perHandle(func(q passing) handle { return polls{q, 1 << 62} }),
	},
	{
		Name: "does-not-wait", Breaks: "RCV-2",
		What: "A receive on an empty queue returns at once, whatever its wait.",
		Wrap: perHandle(func(q passing) handle {
			return changesRequest{q, func(req *driver.ReceiveRequest) { req.Wait = min(req.Wait, 0) }}
		}),
	},
	{
		Name: "waits-for-whole-seconds", Breaks: "RCV-2",
		What: "A wait is cut to whole seconds.",
		Wrap: perHandle(func(q passing) handle {
			return changesRequest{q, func(req *driver.ReceiveRequest) {
				if req.Wait > time.Second {
					req.Wait = req.Wait.Truncate(time.Second)
				}
			}}
		}),
	},
	{
		Name: "fails-when-empty", Breaks: "RCV-2",
		What: "A receive whose wait ends without a message is an error.",
		Wrap: perHandle(func(q passing) handle { return failsWhenEmpty{q} }),
	},
	{
		Name: "wakes-one-of-many", Breaks: "RCV-2",
		What: "A batch wakes one waiting receiver; the others find theirs a second later.",
		Wrap: perQueue(func(q passing, turn *sync.Mutex) handle { return wakesOne{q, turn} }),
	},

	{
		Name: "ignores-cancel", Breaks: "RCV-2",
		What: "A receive that waits does not see its context end.",
		Wrap: perHandle(func(q passing) handle { return ignoresCancel{q} }),
	},
	{
		Name: "strands-on-cancel", Breaks: "RCV-2",
		What: "A cancelled receive goes on waiting behind its caller's back, and leases a message for nobody.",
		Wrap: perHandle(func(q passing) handle { return strandsOnCancel{q} }),
	},
	{
		Name: "wraps-the-contexts-error", Breaks: "RCV-2",
		What: "A cancelled receive returns the context's error inside another.",
		Wrap: perHandle(func(q passing) handle { return wrapsContextError{q} }),
	},
	{
		Name: "ignores-close", Breaks: "RCV-2",
		What: "A closed handle works on.",
		Wrap: perHandle(func(q passing) handle { return ignoresClose{q} }),
	},
	{
		Name: "counts-for-a-closed-handle", Breaks: "RCV-2",
		What: "A closed handle still counts messages.",
		Wrap: perQueue(func(q passing, old *oldStats) handle { return countsClosed{q, old} }),
	},
	{
		Name: "ignores-the-close-of-the-opener", Breaks: "RCV-2",
		What: "Handles of a closed opener work on.",
		Wrap: perOpener(func(b *box) backend { return keepsOpen{b} }),
	},
	{
		Name: "closes-everybody", Breaks: "RCV-2",
		What: "Closing a handle closes the others on the queue.",
		Wrap: perQueue(func(q passing, open *table[driver.Queue, bool]) handle {
			open.put(q.Queue, true)
			return closesEverybody{q, open}
		}),
	},
	{
		Name: "releases-leases-on-close", Breaks: "RCV-2",
		What: "Closing a handle ends the leases that were taken through it.",
		Wrap: perHandle(func(q passing) handle { return releasesOnClose{q, new(table[driver.Receipt, context.Context])} }),
	},
	{
		Name: "calls-closed-a-batch-error", Breaks: "RCV-2",
		What: "A settlement on a closed handle fails position by position, not as a call.",
		Wrap: perHandle(func(q passing) handle { return failsByPosition{q} }),
	},
	{
		Name: "wraps-the-contexts-error-of-a-nack", Breaks: "RCV-2", Also: []string{"ACK-3"},
		What: "A nack whose context has ended returns the context's error inside another.",
		Wrap: perHandle(func(q passing) handle { return wrapsNackError{q} }),
	},
}

type waitsForMore struct{ passing }

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
	passing
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

type failsWhenEmpty struct{ passing }

func (q failsWhenEmpty) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if len(got) == 0 && err == nil && req.Wait > 0 {
		err = &driver.Error{Code: driver.ErrNotFound, Op: "receive", Queue: q.name}
	}
	return got, err
}

type wakesOne struct {
	passing
	turn *sync.Mutex
}

func (q wakesOne) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if req.Wait > 0 && q.turn.TryLock() {
		defer q.turn.Unlock()
		return q.Queue.Receive(ctx, req)
	}
	return polls{q.passing, time.Second}.Receive(ctx, req)
}

type ignoresCancel struct{ passing }

func (q ignoresCancel) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	return q.Queue.Receive(context.WithoutCancel(ctx), req)
}

type strandsOnCancel struct{ passing }

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

type wrapsContextError struct{ passing }

func (q wrapsContextError) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("receive: %w", err)
	}
	return got, err
}

type wrapsNackError struct{ passing }

func (q wrapsNackError) Nack(ctx context.Context, nacks []driver.Nack) error {
	err := q.Queue.Nack(ctx, nacks)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("nack: %w", err)
	}
	return err
}

type ignoresClose struct{ passing }

func (q ignoresClose) Close() error { return nil }

type countsClosed struct {
	passing
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

type keepsOpen struct{ *box }

func (keepsOpen) Close() error { return nil }

type closesEverybody struct {
	passing
	open *table[driver.Queue, bool]
}

func (q closesEverybody) Close() error {
	var errs []error
	for _, other := range q.open.keys() {
		errs = append(errs, other.Close())
	}
	return errors.Join(errs...)
}

type releasesOnClose struct {
	passing
	held *table[driver.Receipt, context.Context] // that lets Close do without one
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
		_, _ = q.Queue.Extend(ctx, []driver.Extension{{Receipt: receipt}}) // it may have ended by itself
	}
	return q.Queue.Close()
}

type failsByPosition struct{ passing }

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
