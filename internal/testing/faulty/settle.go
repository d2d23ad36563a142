package faulty

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var settleFaults = []Saboteur{
	{Name: "accepts-a-second-ack", Breaks: "ACK-1", Also: []string{"VIS-2"},
		What: "A second ack of a message succeeds.",
		on: hooks{ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			err := q.ackOne(ctx, receipt)
			acked := state[receiptMarks](q)
			if err == nil {
				acked.put(receipt, true)
			}
			return unless(acked.at(receipt) && ofBatch(err), err)
		})}},
	{Name: "accepts-acks-in-parallel", Breaks: "ACK-1",
		What: "A receipt is checked and used in two steps, so that several concurrent acks succeed.",
		on: hooks{ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			busy := state[table[driver.Receipt, int]](q)
			before := add(busy, receipt, 1)
			defer add(busy, receipt, -1)
			yieldToOthers()
			err := q.ackOne(ctx, receipt)
			return unless(ofBatch(err) && max(before, busy.at(receipt)) > 1, err)
		})}},
	{Name: "brings-the-acked-back", Breaks: "ACK-1",
		What: "An acked message is back when its lease would have ended.",
		on: hooks{receive: recordLeases, ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
			err := q.Ack(ctx, receipts)
			if err != nil || len(receipts) != 1 {
				return err
			}
			if held, ok := state[leases](q).get(receipts[0]); ok {
				late := context.WithoutCancel(ctx)
				time.AfterFunc(time.Until(held.until), func() {
					_, _ = q.sendOne(late, driver.Outgoing{Body: held.Body, Attributes: held.Attributes, Group: held.Group})
				})
			}
			return nil
		}}},
	{Name: "forgets-the-delay-of-a-nack", Breaks: "ACK-1",
		What: "A nacked message is ready at once, whatever delay was asked for.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			set(nack.Delay > 0 && nack.Delay <= q.Traits().MaxVisibility, &nack.Delay, 0)
		})}},
	{Name: "loses-the-cause-of-a-nack", Breaks: "ACK-1", Also: []string{"RCV-3"},
		What: "A nack with a delay does not keep its cause.",
		on:   hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) { set(nack.Delay > 0, &nack.Cause, "") })}},
	{Name: "clamps-the-delay-of-a-nack", Breaks: "ACK-1",
		What: "A nack delay outside its limits is clamped instead of refused.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			nack.Delay = min(max(nack.Delay, 0), q.Traits().MaxVisibility)
		})}},
	{Name: "limits-nack-delays-to-a-quarter-of-an-hour", Breaks: "ACK-1",
		What: "A nack delay above 15 minutes is shortened to that.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			set(nack.Delay <= q.Traits().MaxVisibility, &nack.Delay, min(nack.Delay, 15*time.Minute))
		})}},
	{Name: "rounds-nack-delays", Breaks: "ACK-1",
		What: "The delay of a nack is rounded up to whole seconds.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			set(nack.Delay > 0 && nack.Delay <= q.Traits().MaxVisibility, &nack.Delay, wholeSeconds(nack.Delay))
		})}},
	{Name: "cuts-causes-inside-a-character", Breaks: "ACK-1",
		What: "A long cause is cut inside a character.",
		on: hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) {
			nack.Cause = nack.Cause[:min(len(nack.Cause), driver.MaxCauseBytes)]
		})}},
	{Name: "refuses-long-causes", Breaks: "ACK-1",
		What: "A nack with a cause that is too long is refused.",
		on:   hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) { set(len(nack.Cause) > driver.MaxCauseBytes, &nack.Delay, -1) })}},

	{Name: "forgets-the-last-ack-of-a-batch", Breaks: "ACK-2",
		What: "The last ack of a batch of several succeeds without an effect.",
		on: hooks{ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
			if len(receipts) > 1 {
				receipts = receipts[:len(receipts)-1]
			}
			return q.Ack(ctx, receipts)
		}}},
	{Name: "stops-at-the-first-failure", Breaks: "ACK-2",
		What: "The acks after a failed one in its batch succeed without an effect.",
		on: hooks{ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
			failed := false
			return each(receipts, func(receipt driver.Receipt) error {
				if failed {
					return nil
				}
				err := q.ackOne(ctx, receipt)
				failed = err != nil
				return err
			})
		}}},
	{Name: "shifts-ack-errors", Breaks: "ACK-2",
		What: "The errors of a batch ack are one position too late.",
		on:   hooks{ack: shiftErrors((*queue).Ack)}},
	{Name: "shifts-nack-errors", Breaks: "ACK-2",
		What: "The errors of a batch nack are one position too late.",
		on:   hooks{nack: shiftErrors((*queue).Nack)}},
	{Name: "shifts-extend-errors", Breaks: "ACK-2",
		What: "The errors of a batch extend are one position too late.",
		on: hooks{extend: func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
			granted, err := q.Extend(ctx, extensions)
			return granted, shifted(err, len(extensions))
		}}},
	{Name: "nacks-a-batch-alike", Breaks: "ACK-2",
		What: "All nacks of a batch get the delay and the cause of the first good one.",
		on: hooks{nack: func(q *queue, ctx context.Context, nacks []driver.Nack) error {
			var first *driver.Nack
			return q.Nack(ctx, changed(q, nacks, func(q *queue, nack *driver.Nack) {
				switch good := nack.Delay >= 0 && nack.Delay <= q.Traits().MaxVisibility; {
				case good && first == nil:
					first = nack
				case good:
					nack.Delay, nack.Cause = first.Delay, first.Cause
				}
			}))
		}}},

	{Name: "names-no-operation", Breaks: "ACK-3",
		What: "The error of a failed settlement does not name the operation.",
		on: hooks{ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			err := q.ackOne(ctx, receipt)
			if ofBatch(err) {
				err = alterError(err, func(e *driver.Error) { e.Op = "" })
			}
			return err
		})}},
	{Name: "fails-with-a-bare-code", Breaks: "ACK-3", Also: []string{"ACK-2"},
		What: "The error of a failed nack is its code and nothing else.",
		on: hooks{nack: func(q *queue, ctx context.Context, nacks []driver.Nack) error {
			err := q.Nack(ctx, nacks)
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
		}}},
}
