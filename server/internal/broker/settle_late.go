package broker

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// AckLate is Ack for protocols that forgive receipts that are past their time; see
// driver.Queue. Codes per position: ErrReceiptExpired; for the call:
// ErrUnsupported (the backend does not forgive).
func (c Caller) AckLate(ctx context.Context, queue string, receipts []string) error {
	return settle(ctx, &c, queue, receipts, &settleCall[string, driver.Receipt]{
		operation: capability.OpAck,
		op:        "ack",
		receipt:   func(r *string) string { return *r },
		convert:   func(_ *queueUse, _ *string, r driver.Receipt) driver.Receipt { return r },
		call: func(ctx context.Context, q *queueUse, rs []driver.Receipt) error {
			if err := q.lacks(q.handle.Traits().LateAck, "ack", "the backend takes no receipts past their deadline"); err != nil {
				return err
			}
			return q.handle.AckLate(ctx, rs)
		},
		done: func(u *queueUse, _ position, _ *string, r driver.Receipt) {
			// The message is gone, also for another token that holds it now.
			u.leases.dropOther(r)
			u.ended(r, endedAcked, EventAcked, "")
		},
	})
}

// ExtendLate is Extend for protocols that forgive a receipt that has just expired; see
// driver.Queue. A message that is leased again counts for its holder again; where the
// holder's share has no room, it is Extend. Codes are those of Extend; for the call:
// ErrUnsupported (the backend does not forgive).
func (c Caller) ExtendLate(ctx context.Context, queue string, extensions []Extension) error {
	owner := c.owner()
	room, err := c.reserve(len(extensions), false)
	if err != nil || room < len(extensions) {
		c.broker.inFlight.Give(owner[:], int64(room))
		_, err := c.Extend(ctx, queue, extensions)
		return err
	}
	defer func() { c.broker.inFlight.Give(owner[:], int64(room)) }()
	return settle(ctx, &c, queue, extensions, &settleCall[Extension, driver.Extension]{
		operation: capability.OpExtend,
		op:        "extend",
		receipt:   func(e *Extension) string { return e.Receipt },
		convert: func(_ *queueUse, e *Extension, r driver.Receipt) driver.Extension {
			return driver.Extension{Receipt: r, Visibility: e.Visibility, Progress: e.Progress}
		},
		call: func(ctx context.Context, q *queueUse, es []driver.Extension) error {
			if err := q.lacks(q.handle.Traits().LateAck, "extend", "the backend takes no receipts past their deadline"); err != nil {
				return err
			}
			return q.handle.ExtendLate(ctx, es)
		},
		done: func(u *queueUse, _ position, e *Extension, r driver.Receipt) {
			u.extended(r, e.Visibility, e.Progress)
			if e.Visibility > 0 && u.leases.resume(r, &c, u.now, u.broker.now()+e.Visibility) {
				room--
			}
		},
	})
}

// resume records a lease that began again, for which the holder has taken a unit. It
// reports false if the lease is still known.
func (t *leaseTable) resume(r driver.Receipt, by *Caller, takenAt time.Time, deadline time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.byID[r.Handle]
	if known && old.receipt == r {
		return false
	}
	if known {
		t.give(old.holder.token, 1)
		old.ended(endedExpired)
	}
	if t.byID == nil {
		t.byID = takeLeases(1)
	}
	id := by.workerID()
	w := t.workers[id.key()]
	if w != nil {
		w.held++
	}
	t.byID[r.Handle] = lease{receipt: r, holder: by.holder, takenAt: takenAt, deadline: deadline, attempt: 1, worker: w}
	t.most = max(t.most, len(t.byID))
	return true
}

// dropOther ends the lease of a message if it has another receipt.
func (t *leaseTable) dropOther(r driver.Receipt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[r.Handle]; ok && l.receipt != r {
		delete(t.byID, r.Handle)
		t.give(l.holder.token, 1)
		l.ended(endedOtherwise)
		t.rest()
	}
}

// Taken identifies the delivery of a receipt.
type Taken struct {
	// Message is the id of the message, or another handle of the backend.
	Message string
	At      time.Time
}

// Taken reads a receipt. ok is false if it was not sealed for this queue with a key of
// the daemon. The receipt may have expired. Taken does no I/O and does not authorise:
// the receipt proves that its bearer took the delivery.
func (c Caller) Taken(queue, receipt string) (taken Taken, ok bool) {
	backend, err := backendName(c.tenant, queue)
	if err != nil {
		return taken, false
	}
	r, by, ok := c.broker.receipts.open(receipt, backend)
	return Taken{Message: r.Handle, At: by.at}, ok
}
