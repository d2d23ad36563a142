package broker

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// AckLate is Ack for protocols that forgive receipts that are past their time; see
// driver.LateAcker. Codes per position: ErrReceiptExpired; for the call:
// ErrUnsupported (the backend does not forgive).
func (c Caller) AckLate(ctx context.Context, topic string, receipts []string) error {
	return settle(ctx, &c, topic, receipts, &settling[string, driver.Receipt]{
		operation: capability.OpAck,
		op:        "ack",
		receipt:   func(r *string) string { return *r },
		convert:   func(_ *topicUse, _ *string, r driver.Receipt) driver.Receipt { return r },
		call: func(ctx context.Context, t *topicUse, rs []driver.Receipt) error {
			late, ok := t.queue.(driver.LateAcker)
			if !ok {
				return &driver.Error{Code: driver.ErrUnsupported, Op: "ack", Queue: t.name, Detail: "the backend takes no receipts that are past their time"}
			}
			return late.AckLate(ctx, rs)
		},
		done: func(u *topicUse, _ position, _ *string, r driver.Receipt) {
			// The message is gone, whoever has it now.
			u.leases.drop(r.Handle)
			u.ended(r, EventAcked, "")
		},
	})
}

// drop ends the lease of a message, whatever its receipt, if there is one.
func (t *leaseTable) drop(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[id]; ok {
		delete(t.byID, id)
		t.give(&l)
		t.rest()
	}
}

// Taken says which delivery a receipt is of.
type Taken struct {
	// Message is what the backend calls the message: its id, or a handle.
	Message string
	At      time.Time
}

// Taken reads a receipt. ok is false if nobody with the daemon's keys sealed it for
// this topic. It says nothing about whether the receipt still works, does no I/O,
// and needs no token: who has the receipt took the delivery.
func (c Caller) Taken(topic, receipt string) (taken Taken, ok bool) {
	backend, err := backendName(c.tenant, topic)
	if err != nil {
		return taken, false
	}
	r, by, ok := c.broker.receipts.open(receipt, backend)
	return Taken{Message: r.Handle, At: by.at}, ok
}
