package faulty

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var receiptFaults = []Saboteur{
	{
		Name: "accepts-a-stale-receipt", Breaks: "VIS-2",
		What: "An ack with the receipt of an earlier delivery acks the message.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return acceptsStaleAck{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "lets-a-stale-extend-take-over", Breaks: "VIS-2",
		What: "An extension with the receipt of an earlier delivery moves the new holder's deadline.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return acceptsStaleExtend{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "lets-a-stale-nack-take-away", Breaks: "VIS-2",
		What: "A nack with the receipt of an earlier delivery takes the message from its new holder.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return acceptsStaleNack{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "lets-a-stale-dead-letter-take-away", Breaks: "VIS-2",
		What: "Dead-lettering with the receipt of an earlier delivery takes the message from its new holder.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return acceptsStaleDeadLetter{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "accepts-an-ack-after-the-deadline", Breaks: "VIS-2", Also: []string{"VIS-6"},
		What: "An ack after the deadline succeeds until the message is delivered again.",
		Wrap: perQueue(func(q passThrough, late *lateAcks) driver.Queue { return acksLate{q, late} }),
	},
	{
		Name: "gives-one-receipt-for-all-deliveries", Breaks: "VIS-2",
		What: "The receipt is the message's id.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return receiptIsID{passThrough: q, latest: latest}
		}),
	},
	{
		Name: "ignores-the-nonce", Breaks: "VIS-2",
		What: "The nonce of a receipt is not checked.",
		Wrap: perQueue(func(q passThrough, latest *latestReceipts) driver.Queue {
			return ignoresNonce{remembersReceipts{q, latest}}
		}),
	},
	{
		Name: "takes-receipts-of-other-queues", Breaks: "VIS-2",
		What: "A receipt works at any queue.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return acceptsForeign{q, stateOf[table[driver.Receipt, driver.Queue]](q.wrapper, "")}
		}),
	},
}

// latestReceipts are the latest receipts of messages.
type latestReceipts struct {
	messages table[driver.Receipt, string]
	latest   table[string, driver.Receipt]
}

func (l *latestReceipts) note(got []driver.Delivery) {
	for _, d := range got {
		l.messages.put(d.Receipt, d.ID)
		l.latest.put(d.ID, d.Receipt)
	}
}

// current returns the valid receipt of a message, given an older one.
func (l *latestReceipts) current(old driver.Receipt) driver.Receipt {
	if id, ok := l.messages.get(old); ok {
		latest, _ := l.latest.get(id)
		return latest
	}
	return old
}

// remembersReceipts records receipts for saboteurs that confuse them.
type remembersReceipts struct {
	passThrough
	*latestReceipts
}

func (q remembersReceipts) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	q.note(got)
	return got, err
}

type acceptsStaleAck struct{ remembersReceipts }

func (q acceptsStaleAck) Ack(ctx context.Context, acked []driver.Receipt) error {
	current := make([]driver.Receipt, len(acked))
	for i, receipt := range acked {
		current[i] = q.current(receipt)
	}
	return q.Queue.Ack(ctx, current)
}

type acceptsStaleExtend struct{ remembersReceipts }

func (q acceptsStaleExtend) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	current := append([]driver.Extension(nil), extensions...)
	for i := range current {
		current[i].Receipt = q.current(current[i].Receipt)
	}
	return q.Queue.Extend(ctx, current)
}

type acceptsStaleNack struct{ remembersReceipts }

func (q acceptsStaleNack) Nack(ctx context.Context, nacks []driver.Nack) error {
	current := append([]driver.Nack(nil), nacks...)
	for i := range current {
		current[i].Receipt = q.current(current[i].Receipt)
	}
	return q.Queue.Nack(ctx, current)
}

type acceptsStaleDeadLetter struct{ remembersReceipts }

func (q acceptsStaleDeadLetter) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	current := append([]driver.DeadLetterRequest(nil), requests...)
	for i := range current {
		current[i].Receipt = q.current(current[i].Receipt)
	}
	return q.Queue.DeadLetter(ctx, current)
}

// lateAcks are messages that must be gone at their next delivery.
type lateAcks struct {
	latestReceipts
	gone table[string, bool]
}

type acksLate struct {
	passThrough
	*lateAcks
}

func (q acksLate) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if err == nil {
			q.messages.drop(receipt)
		}
		id, known := q.messages.get(receipt)
		if ofBatch(err) && known && q.current(receipt) == receipt {
			q.gone.put(id, true)
			return nil
		}
		return err
	})
}

func (q acksLate) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	for {
		got, err := q.Queue.Receive(ctx, req)
		q.note(got)
		left := slices.DeleteFunc(got, func(d driver.Delivery) bool {
			gone, _ := q.gone.get(d.ID)
			return gone && q.Queue.Ack(ctx, []driver.Receipt{d.Receipt}) == nil
		})
		if len(left) > 0 || len(got) == 0 || err != nil {
			return left, err
		}
	}
}

type ignoresNonce struct{ remembersReceipts }

func (q ignoresNonce) Ack(ctx context.Context, acked []driver.Receipt) error {
	found := append([]driver.Receipt(nil), acked...)
	for i := range found {
		for _, known := range q.messages.keys() {
			if known.Handle == found[i].Handle && known.Place == found[i].Place {
				found[i] = known
			}
		}
	}
	return q.Queue.Ack(ctx, found)
}

type receiptIsID struct {
	passThrough
	latest *latestReceipts
}

func (q receiptIsID) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	q.latest.note(got)
	for i := range got {
		got[i].Receipt = driver.Receipt{Handle: got[i].ID}
	}
	return got, err
}

func (q receiptIsID) real(receipt driver.Receipt) driver.Receipt {
	if latest, ok := q.latest.latest.get(receipt.Handle); ok && receipt == (driver.Receipt{Handle: receipt.Handle}) {
		return latest
	}
	return receipt
}

func (q receiptIsID) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error { return q.Queue.Ack(ctx, []driver.Receipt{q.real(receipt)}) })
}

func (q receiptIsID) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		nack.Receipt = q.real(nack.Receipt)
		return q.Queue.Nack(ctx, []driver.Nack{nack})
	})
}

func (q receiptIsID) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return eachExtension(extensions, func(extension driver.Extension) ([]time.Duration, error) {
		extension.Receipt = q.real(extension.Receipt)
		return q.Queue.Extend(ctx, []driver.Extension{extension})
	})
}

func (q receiptIsID) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return each(requests, func(request driver.DeadLetterRequest) error {
		request.Receipt = q.real(request.Receipt)
		return q.Queue.DeadLetter(ctx, []driver.DeadLetterRequest{request})
	})
}

type acceptsForeign struct {
	passThrough
	origin *table[driver.Receipt, driver.Queue]
}

func (q acceptsForeign) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.origin.put(d.Receipt, q.Queue)
	}
	return got, err
}

func (q acceptsForeign) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		if origin, ok := q.origin.get(receipt); ok && ofBatch(err) {
			return origin.Ack(ctx, []driver.Receipt{receipt})
		}
		return err
	})
}
