package faulty

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

// deliveries are all that were made, by receipt.
type deliveries = table[driver.Receipt, driver.Delivery]

// remembering keeps deliveries, for saboteurs that need to know what a receipt
// stands for.
type remembering struct {
	passing
	delivered *deliveries
}

func (q remembering) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.delivered.put(d.Receipt, d)
	}
	return got, err
}
