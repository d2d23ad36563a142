package sqsbox

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

type (
	deleteEntry = types.DeleteMessageBatchRequestEntry
	changeEntry = types.ChangeMessageVisibilityBatchRequestEntry
)

// key returns the lease of a receipt, and whether it is one of this backend. For
// receipts of another process, SQS decides.
func (q *queue) key(r driver.Receipt) (key leaseKey, own bool) {
	return leaseKey{q.physical, r.Handle}, r.Place == q.backend.identity
}

// claim begins the settlement of the delivery that a receipt names.
func (q *queue) claim(r driver.Receipt, op string) (held lease, err error) {
	if intact(q.physical, r) {
		key, own := q.key(r)
		if !own {
			return lease{}, nil
		}
		if held, ok := q.backend.leases.claim(key); ok {
			return held, nil
		}
	}
	return lease{}, q.failure(driver.ErrReceiptExpired, op)
}

// settled ends what claim began.
func (q *queue) settled(r driver.Receipt, err error) {
	if key, own := q.key(r); own {
		q.backend.leases.settled(key, err)
	}
}

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if err := h.check(ctx, "ack"); err != nil {
		return err
	}
	bad := make([]error, len(receipts))
	var entries []deleteEntry
	var positions []int
	var until []time.Time
	var ids []string
	for i, r := range receipts {
		found, err := h.claim(r, "ack")
		if err != nil {
			bad[i] = err
			continue
		}
		entries = append(entries, deleteEntry{ReceiptHandle: aws.String(r.Handle)})
		positions, until, ids = append(positions, i), append(until, found.deadline), append(ids, found.id)
	}
	ours := append([]driver.Receipt(nil), receipts...) // the answer may come after the call has returned
	answers, err := h.acks.do(ctx, entries, until, func(n int, a *answer[struct{}]) {
		h.settled(ours[positions[n]], a.err)
		if a.err == nil {
			h.backend.local.gone(h.physical, ids[n])
		}
		a.err = driver.Annotate(a.err, h.name, "ack")
	})
	if err != nil {
		return err
	}
	return failuresOf(bad, positions, answers)
}

// Nack makes a message visible again after its delay. After its last allowed delivery it
// is not delayed: SQS dead-letters it when it would next be delivered.
func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	if err := h.check(ctx, "nack"); err != nil {
		return err
	}
	current := h.settings.Load()
	c := h.newChanges("nack", len(nacks))
	for i, n := range nacks {
		if err := n.Check(&current.traits); err != nil {
			c.bad[i] = driver.Annotate(err, h.name, "nack")
			continue
		}
		held, err := h.claim(n.Receipt, "nack")
		if err != nil {
			c.bad[i] = err
			continue
		}
		delay := n.Delay
		if most := current.config.MaxDeliveries; most > 0 && held.deliveries >= most {
			delay = 0
		}
		cause := driver.TrimCause(n.Cause)
		c.add(i, n.Receipt, held.deadline, h.within(delay, held), func(err error) {
			h.settled(n.Receipt, err)
			if err == nil && held.id != "" {
				h.backend.local.nacked(h.physical, held.id, cause)
			}
		})
	}
	return c.send(ctx)
}

func (h *handle) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	if err := h.check(ctx, "extend"); err != nil {
		return nil, err
	}
	asked := append([]driver.Extension(nil), extensions...) // cut to what SQS allows
	current := h.settings.Load()
	c := h.newChanges("extend", len(extensions))
	for i, e := range extensions {
		if err := e.Check(&current.traits); err != nil {
			c.bad[i] = driver.Annotate(err, h.name, "extend")
			continue
		}
		if e.Visibility == 0 {
			held, err := h.claim(e.Receipt, "extend")
			if err != nil {
				c.bad[i] = err
				continue
			}
			c.add(i, e.Receipt, held.deadline, 0, func(err error) { h.settled(e.Receipt, err) })
			continue
		}
		key, own := h.key(e.Receipt)
		held, alive := h.backend.leases.look(key)
		if !intact(h.physical, e.Receipt) || own && !alive {
			c.bad[i] = h.failure(driver.ErrReceiptExpired, "extend")
			continue
		}
		visibility := h.within(e.Visibility, held)
		asked[i].Visibility = min(e.Visibility, time.Duration(visibility)*time.Second)
		deadline := time.Now().Add(asked[i].Visibility) // earlier than that of SQS
		c.add(i, e.Receipt, held.deadline, visibility, func(err error) { h.backend.leases.extended(key, deadline, err) })
	}
	err := c.send(ctx)
	return driver.GrantedAsAsked(asked, err), err
}

// within returns a visibility in seconds, cut so that the delivery stays within the time
// that SQS allows for it in all, if its beginning is known.
func (h *handle) within(visibility time.Duration, held lease) int32 {
	asked := wholeSeconds(visibility)
	if !held.taken.IsZero() {
		left := driver.DefaultMaxVisibility - time.Since(held.taken)
		asked = min(asked, max(int(left/time.Second), 0))
	}
	return int32(asked)
}

// changes is a batch of visibility changes.
type changes struct {
	queue     *queue
	op        string
	bad       []error
	entries   []changeEntry
	positions []int
	until     []time.Time
	done      []func(error)
}

func (h *handle) newChanges(op string, n int) *changes {
	return &changes{queue: h.queue, op: op, bad: make([]error, n)}
}

// add adds a change of a lease that ends at until; done gets the result, even if the
// call has returned.
func (c *changes) add(position int, r driver.Receipt, until time.Time, visibility int32, done func(error)) {
	c.entries = append(c.entries, changeEntry{ReceiptHandle: aws.String(r.Handle), VisibilityTimeout: visibility})
	c.positions, c.until = append(c.positions, position), append(c.until, until)
	c.done = append(c.done, done)
}

func (c *changes) send(ctx context.Context) error {
	answers, err := c.queue.changes.do(ctx, c.entries, c.until, func(n int, a *answer[struct{}]) {
		c.done[n](a.err)
		a.err = driver.Annotate(a.err, c.queue.name, c.op)
	})
	if err != nil {
		return err
	}
	return failuresOf(c.bad, c.positions, answers)
}
