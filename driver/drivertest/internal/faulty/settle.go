package faulty

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var settleFaults = []Saboteur{
	{
		Name: "accepts-a-second-ack", Breaks: "ACK-1", Also: []string{"VIS-2"},
		What: "A second ack of a message succeeds.",
		Wrap: perQueue(func(q passThrough, acked *table[driver.Receipt, bool]) driver.Queue { return acksTwice{q, acked} }),
	},
	{
		Name: "accepts-acks-in-parallel", Breaks: "ACK-1",
		What: "A receipt is checked and used in two steps, so that several concurrent acks succeed.",
		Wrap: perQueue(func(q passThrough, busy *table[driver.Receipt, int]) driver.Queue { return acksInParallel{q, busy} }),
	},
	{
		Name: "brings-the-acked-back", Breaks: "ACK-1",
		What: "An acked message is back when its lease would have ended.",
		Wrap: perQueue(func(q passThrough, held *table[driver.Receipt, lease]) driver.Queue { return bringsBack{q, held} }),
	},
	{
		Name: "forgets-the-delay-of-a-nack", Breaks: "ACK-1",
		What: "A nacked message is ready at once, whatever delay was asked for.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) {
				if nack.Delay > 0 && nack.Delay <= q.Traits().MaxVisibility {
					nack.Delay = 0
				}
			}}
		}),
	},
	{
		Name: "loses-the-cause-of-a-nack", Breaks: "ACK-1", Also: []string{"RCV-3"},
		What: "A nack with a delay does not keep its cause.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) {
				if nack.Delay > 0 {
					nack.Cause = ""
				}
			}}
		}),
	},
	{
		Name: "clamps-the-delay-of-a-nack", Breaks: "ACK-1",
		What: "A nack delay outside its limits is clamped instead of refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) { nack.Delay = min(max(nack.Delay, 0), q.Traits().MaxVisibility) }}
		}),
	},
	{
		Name: "limits-nack-delays-like-send-delays", Breaks: "ACK-1",
		What: "A nack delay above the longest delay of a send is shortened to that.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) {
				if nack.Delay <= q.Traits().MaxVisibility {
					nack.Delay = min(nack.Delay, q.Traits().MaxDelay)
				}
			}}
		}),
	},
	{
		Name: "rounds-nack-delays", Breaks: "ACK-1",
		What: "The delay of a nack is rounded up to whole seconds.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) {
				if nack.Delay > 0 && nack.Delay <= q.Traits().MaxVisibility {
					nack.Delay = wholeSeconds(nack.Delay)
				}
			}}
		}),
	},
	{
		Name: "cuts-causes-inside-a-character", Breaks: "ACK-1",
		What: "A long cause is cut inside a character.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) { nack.Cause = nack.Cause[:min(len(nack.Cause), driver.MaxCauseBytes)] }}
		}),
	},
	{
		Name: "refuses-long-causes", Breaks: "ACK-1",
		What: "A nack with a cause that is too long is refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) {
				if len(nack.Cause) > driver.MaxCauseBytes {
					nack.Delay = -1
				}
			}}
		}),
	},

	{
		Name: "forgets-the-last-ack-of-a-batch", Breaks: "ACK-2",
		What: "The last ack of a batch of several succeeds without an effect.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return forgetsLastAck{q} }),
	},
	{
		Name: "stops-at-the-first-failure", Breaks: "ACK-2",
		What: "The acks after a failed one in its batch succeed without an effect.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return stopsAtFailure{q} }),
	},
	{
		Name: "shifts-ack-errors", Breaks: "ACK-2",
		What: "The errors of a batch ack are one position too late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsSettleErrors{passThrough: q, ack: true} }),
	},
	{
		Name: "shifts-nack-errors", Breaks: "ACK-2",
		What: "The errors of a batch nack are one position too late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsSettleErrors{passThrough: q, nack: true} }),
	},
	{
		Name: "shifts-extend-errors", Breaks: "ACK-2",
		What: "The errors of a batch extend are one position too late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsSettleErrors{passThrough: q, extend: true} }),
	},
	{
		Name: "nacks-a-batch-alike", Breaks: "ACK-2",
		What: "All nacks of a batch get the delay and the cause of the first good one.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return nacksAlike{q} }),
	},

	{
		Name: "names-no-operation", Breaks: "ACK-3",
		What: "The error of a failed settlement does not name the operation.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return namesNoOperation{q} }),
	},
	{
		Name: "fails-with-a-bare-code", Breaks: "ACK-3", Also: []string{"ACK-2"},
		What: "The error of a failed nack is its code and nothing else.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return failsBare{q} }),
	},
}

type acksTwice struct {
	passThrough
	acked *table[driver.Receipt, bool]
}

func (q acksTwice) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if again, _ := q.acked.get(receipt); again && ofBatch(err) {
			return nil
		}
		if err == nil {
			q.acked.put(receipt, true)
		}
		return err
	})
}

type acksInParallel struct {
	passThrough
	busy *table[driver.Receipt, int]
}

func (q acksInParallel) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		before := add(q.busy, receipt, 1)
		defer add(q.busy, receipt, -1)
		yieldToOthers()
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if now, _ := q.busy.get(receipt); ofBatch(err) && max(before, now) > 1 {
			return nil
		}
		return err
	})
}

// A lease is a delivery with its deadline.
type lease struct {
	driver.Delivery
	until time.Time
}

type bringsBack struct {
	passThrough
	held *table[driver.Receipt, lease]
}

func (q bringsBack) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	leased(q.held, got, req.Visibility)
	return got, err
}

func (q bringsBack) Ack(ctx context.Context, acked []driver.Receipt) error {
	err := q.Queue.Ack(ctx, acked)
	if err != nil || len(acked) != 1 {
		return err
	}
	if held, ok := q.held.get(acked[0]); ok {
		late := context.WithoutCancel(ctx)
		time.AfterFunc(time.Until(held.until), func() {
			_, _ = q.Queue.Send(late, []driver.Outgoing{{Body: held.Body, Attributes: held.Attributes, Group: held.Group}})
		})
	}
	return nil
}

// changesNacks changes each nack before the backend gets it.
type changesNacks struct {
	passThrough
	change func(*driver.Nack)
}

func (q changesNacks) Nack(ctx context.Context, nacks []driver.Nack) error {
	changed := append([]driver.Nack(nil), nacks...)
	for i := range changed {
		q.change(&changed[i])
	}
	return q.Queue.Nack(ctx, changed)
}

type forgetsLastAck struct{ passThrough }

func (q forgetsLastAck) Ack(ctx context.Context, acked []driver.Receipt) error {
	if len(acked) > 1 {
		acked = acked[:len(acked)-1]
	}
	return q.Queue.Ack(ctx, acked)
}

type stopsAtFailure struct{ passThrough }

func (q stopsAtFailure) Ack(ctx context.Context, acked []driver.Receipt) error {
	failed := false
	return each(acked, func(receipt driver.Receipt) error {
		if failed {
			return nil
		}
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		failed = err != nil
		return err
	})
}

type shiftsSettleErrors struct {
	passThrough
	ack, nack, extend bool
}

func (q shiftsSettleErrors) Ack(ctx context.Context, acked []driver.Receipt) error {
	err := q.Queue.Ack(ctx, acked)
	if q.ack {
		err = shifted(err, len(acked))
	}
	return err
}

func (q shiftsSettleErrors) Nack(ctx context.Context, nacks []driver.Nack) error {
	err := q.Queue.Nack(ctx, nacks)
	if q.nack {
		err = shifted(err, len(nacks))
	}
	return err
}

func (q shiftsSettleErrors) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	granted, err := q.Queue.Extend(ctx, extensions)
	if q.extend {
		err = shifted(err, len(extensions))
	}
	return granted, err
}

type nacksAlike struct{ passThrough }

func (q nacksAlike) Nack(ctx context.Context, nacks []driver.Nack) error {
	alike := append([]driver.Nack(nil), nacks...)
	var first *driver.Nack
	for i := range alike {
		switch good := alike[i].Delay >= 0 && alike[i].Delay <= q.Traits().MaxVisibility; {
		case good && first == nil:
			first = &alike[i]
		case good:
			alike[i].Delay, alike[i].Cause = first.Delay, first.Cause
		}
	}
	return q.Queue.Nack(ctx, alike)
}

type namesNoOperation struct{ passThrough }

func (q namesNoOperation) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if detail, ok := errors.AsType[*driver.Error](err); ok && ofBatch(err) {
			nameless := *detail
			nameless.Op = ""
			return &nameless
		}
		return err
	})
}

type failsBare struct{ passThrough }

func (q failsBare) Nack(ctx context.Context, nacks []driver.Nack) error {
	err := q.Queue.Nack(ctx, nacks)
	if !ofBatch(err) {
		return err
	}
	errs := make([]error, len(nacks))
	for i := range errs {
		if detail, ok := errors.AsType[*driver.Error](driver.At(err, i)); ok {
			errs[i] = detail.Code
		}
	}
	return driver.NewBatchError(errs)
}
