package remotebox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// Receive leases messages. It blocks for up to req.Wait, and returns as soon as
// there is one. Cancelling ctx or closing the handle wakes it at once; what the
// daemon had leased for it by then is returned. If the connection is lost it
// goes on waiting on another.
func (q *queue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	c := q.backend.newCall(oap.OpReceive, nil)
	c.receive, c.began, c.kept = req, time.Now(), true
	o := operation{name: "receive", queue: q, call: c, repeatable: true, waits: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return nil, err
	}
	defer q.backend.free(c)
	var got []driver.Delivery
	if req.Max > 0 {
		got = make([]driver.Delivery, 0, min(req.Max, 1+len(c.payload)/minDeliveryBytes))
	}
	got, err := oap.ParseDeliveries(c.payload, got)
	if err != nil {
		return nil, o.unknown(err.Error())
	}
	if len(got) == 0 {
		return nil, nil
	}
	return q.verified(ctx, got)
}

// minDeliveryBytes is about what a delivery has at least: an id and a receipt.
const minDeliveryBytes = 64
