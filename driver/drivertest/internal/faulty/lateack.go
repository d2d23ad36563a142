package faulty

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var lateAckFaults = []Saboteur{
	{
		Name: "forgives-no-late-ack", Breaks: "VIS-7",
		What: "A late ack is refused, although the queue accepts late acks.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return forgivesNothing{q} }),
	},
	{
		Name: "leases-nothing-again", Breaks: "VIS-7",
		What: "A late extension succeeds, and the message stays ready.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return ignoresLateExtensions{q} }),
	},
	{
		Name: "counts-leasing-again", Breaks: "VIS-7",
		What: "A message that was leased again by a late extension counts another delivery.",
		Wrap: perQueue(func(q passThrough, late *table[string, bool]) driver.Queue { return countsLateExtensions{q, late} }),
	},
	{
		Name: "ignores-late-acks", Breaks: "VIS-7",
		What: "A late ack succeeds, and the message stays.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return ignoresLate{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "forgives-only-the-latest", Breaks: "VIS-7",
		What: "A late ack with the receipt of an earlier delivery is refused.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return forgivesLatest{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "forgives-only-until-the-next-delivery", Breaks: "VIS-7",
		What: "While a message is in flight again, only its holder can ack it.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return forgivesNoneInFlight{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "acks-late-what-was-nacked", Breaks: "VIS-7",
		What: "A late ack removes a message that was nacked since.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return acksNackedLate{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "acks-late-whatever-the-nonce", Breaks: "VIS-7",
		What: "A late ack does not check the nonce of the receipt.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return acksAnyNonce{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "leaves-receipts-alive-after-a-late-ack", Breaks: "VIS-7",
		What: "When a message was acked late, an ack with its later receipt succeeds too.",
		Wrap: perQueue(func(q passThrough, gone *table[string, bool]) driver.Queue { return acksGone{q, gone} }),
	},
	{
		Name: "brings-back-what-was-acked-late-on-restart", Breaks: "VIS-7",
		What: "After a restart messages that were acked late are back.",
		Wrap: restarts(restartFault{restart: bringsBackRecorded, before: func(q passThrough, log *restartLog) driver.Queue {
			return recordsLate{remembersDeliveries{q, new(deliveries)}, log}
		}}),
	},
}

func expired(q passThrough) error {
	return &driver.Error{Code: driver.ErrReceiptExpired, Op: "ack", Queue: q.name}
}

type forgivesNothing struct{ passThrough }

func (q forgivesNothing) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return q.Queue.Ack(ctx, receipts)
}

type ignoresLate struct{ remembersReceipts }

func (q ignoresLate) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return each(receipts, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if _, known := q.messages.get(receipt); known && errors.Is(err, driver.ErrReceiptExpired) {
			return nil
		}
		return err
	})
}

type forgivesLatest struct{ remembersReceipts }

func (q forgivesLatest) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return each(receipts, func(receipt driver.Receipt) error {
		if q.current(receipt) != receipt {
			return expired(q.passThrough)
		}
		return q.Queue.AckLate(ctx, []driver.Receipt{receipt})
	})
}

type forgivesNoneInFlight struct{ remembersReceipts }

func (q forgivesNoneInFlight) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return each(receipts, func(receipt driver.Receipt) error {
		for _, seen := range q.peeked(ctx, driver.StateInFlight) {
			if seen.ID == receipt.Handle && q.current(receipt) != receipt {
				return expired(q.passThrough)
			}
		}
		return q.Queue.AckLate(ctx, []driver.Receipt{receipt})
	})
}

// acksNackedLate receives the nacked message and acks it.
type acksNackedLate struct{ remembersReceipts }

func (q acksNackedLate) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return each(receipts, func(receipt driver.Receipt) error {
		err := q.Queue.AckLate(ctx, []driver.Receipt{receipt})
		if _, known := q.messages.get(receipt); !known || !errors.Is(err, driver.ErrReceiptExpired) {
			return err
		}
		got, receiveErr := q.Queue.Receive(ctx, driver.ReceiveRequest{Max: 100, Visibility: time.Minute})
		for _, d := range got {
			if d.ID == receipt.Handle {
				err = q.Queue.Ack(ctx, []driver.Receipt{d.Receipt})
				continue
			}
			receiveErr = errors.Join(receiveErr, extended(q.Queue.Extend(ctx, []driver.Extension{{Receipt: d.Receipt}})))
		}
		if receiveErr != nil {
			return receiveErr
		}
		return err
	})
}

type acksAnyNonce struct{ remembersReceipts }

func (q acksAnyNonce) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return each(receipts, func(receipt driver.Receipt) error {
		if latest, known := q.latest.get(receipt.Handle); known {
			receipt = latest
		}
		return q.Queue.AckLate(ctx, []driver.Receipt{receipt})
	})
}

type acksGone struct {
	passThrough
	gone *table[string, bool]
}

func (q acksGone) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	err := q.Queue.AckLate(ctx, receipts)
	for i, receipt := range receipts {
		if driver.At(err, i) == nil {
			q.gone.put(receipt.Handle, true)
		}
	}
	return err
}

func (q acksGone) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return each(receipts, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if gone, _ := q.gone.get(receipt.Handle); gone && errors.Is(err, driver.ErrReceiptExpired) {
			return nil
		}
		return err
	})
}

type recordsLate struct {
	remembersDeliveries
	log *restartLog
}

func (q recordsLate) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	err := q.Queue.AckLate(ctx, receipts)
	for i, receipt := range receipts {
		if d, ok := q.delivered.get(receipt); ok && driver.At(err, i) == nil {
			before, _ := q.log.get(q.name)
			q.log.put(q.name, append(before, d.Message))
		}
	}
	return err
}

type ignoresLateExtensions struct{ passThrough }

func (q ignoresLateExtensions) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	if _, err := q.Queue.Extend(ctx, extensions); err != nil && !errors.Is(err, driver.ErrReceiptExpired) {
		return err
	}
	return nil
}

type countsLateExtensions struct {
	passThrough
	late *table[string, bool]
}

func (q countsLateExtensions) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	err := q.Queue.ExtendLate(ctx, extensions)
	for i := range extensions {
		if driver.At(err, i) == nil {
			q.late.put(extensions[i].Receipt.Handle, true)
		}
	}
	return err
}

func (q countsLateExtensions) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if late, _ := q.late.get(got[i].ID); late {
			got[i].Deliveries++
		}
	}
	return got, err
}
