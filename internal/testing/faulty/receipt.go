package faulty

import (
	"context"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

var receiptFaults = []Saboteur{
	{Name: "accepts-a-stale-receipt", Breaks: "VIS-2",
		What: "An ack with the receipt of an earlier delivery acks the message.",
		on:   hooks{ack: alterEach((*queue).Ack, (*queue).renew)}},
	{Name: "lets-a-stale-extend-take-over", Breaks: "VIS-2",
		What: "An extension with the receipt of an earlier delivery moves the new holder's deadline.",
		on:   hooks{extend: alterExtensions(func(q *queue, e *driver.Extension) { q.renew(&e.Receipt) })}},
	{Name: "lets-a-stale-nack-take-away", Breaks: "VIS-2",
		What: "A nack with the receipt of an earlier delivery takes the message from its new holder.",
		on:   hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) { q.renew(&nack.Receipt) })}},
	{Name: "lets-a-stale-dead-letter-take-away", Breaks: "VIS-2",
		What: "Dead-lettering with the receipt of an earlier delivery takes the message from its new holder.",
		on:   hooks{deadLetter: alterEach((*queue).DeadLetter, func(q *queue, r *driver.DeadLetterRequest) { q.renew(&r.Receipt) })}},
	{Name: "accepts-an-ack-after-the-deadline", Breaks: "VIS-2", Also: []string{"VIS-6"},
		What: "An ack after the deadline succeeds until the message is delivered again.",
		on: hooks{
			ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
				err := q.ackOne(ctx, receipt)
				if err == nil {
					q.delivered.drop(receipt)
				}
				d, known := q.delivered.get(receipt)
				late := ofBatch(err) && known && q.current(receipt) == receipt
				if late {
					state[marks](q).put(d.ID, true)
				}
				return unless(late, err)
			}),
			receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
				for {
					got, err := q.Receive(ctx, req)
					q.note(got)
					left := slices.DeleteFunc(got, func(d driver.Delivery) bool {
						return state[marks](q).at(d.ID) && q.ackOne(ctx, d.Receipt) == nil
					})
					if len(left) > 0 || len(got) == 0 || err != nil {
						return left, err
					}
				}
			},
		}},
	{Name: "gives-one-receipt-for-all-deliveries", Breaks: "VIS-2",
		What: "The receipt is the message's id.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) {
				state[table[driver.Receipt, driver.Receipt]](q).put(driver.Receipt{Handle: d.ID}, d.Receipt)
				d.Receipt = driver.Receipt{Handle: d.ID}
			}),
			ack:        alterEach((*queue).Ack, byID),
			nack:       alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) { byID(q, &nack.Receipt) }),
			extend:     alterExtensions(func(q *queue, e *driver.Extension) { byID(q, &e.Receipt) }),
			deadLetter: alterEach((*queue).DeadLetter, func(q *queue, r *driver.DeadLetterRequest) { byID(q, &r.Receipt) }),
		}},
	{Name: "ignores-the-nonce", Breaks: "VIS-2",
		What: "The nonce of a receipt is not checked.",
		on: hooks{ack: alterEach((*queue).Ack, func(q *queue, receipt *driver.Receipt) {
			for _, known := range q.delivered.keys() {
				if known.Handle == receipt.Handle && known.Place == receipt.Place {
					*receipt = known
				}
			}
		})}},
	{Name: "takes-receipts-of-other-queues", Breaks: "VIS-2",
		What: "A receipt works at any queue.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) {
				state[table[driver.Receipt, driver.Queue]](q.wrapper).put(d.Receipt, q.Queue)
			}),
			ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
				err := q.ackOne(ctx, receipt)
				if origin, ok := state[table[driver.Receipt, driver.Queue]](q.wrapper).get(receipt); ok && ofBatch(err) {
					return origin.Ack(ctx, []driver.Receipt{receipt})
				}
				return err
			}),
		}},
}

// renew replaces a receipt with the latest one of its message.
func (q *queue) renew(receipt *driver.Receipt) { *receipt = q.current(*receipt) }

// byID replaces a receipt that is a message's id with the latest one of the message.
func byID(q *queue, receipt *driver.Receipt) {
	state[table[driver.Receipt, driver.Receipt]](q).load(*receipt, receipt)
}
