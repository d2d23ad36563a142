package broker

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// A Target names one delivery by the id of its message.
type Target struct {
	// Queue may be empty if the message was received through this broker recently.
	Queue string
	ID    string
	// Receipt may be empty if the caller's token took the delivery through this
	// broker.
	Receipt string
}

// AckOne acks one delivery. Without a receipt it acts on the current lease, if exactly
// the same token took it. Repeating a recent ack of the token succeeds. Otherwise it is
// like Ack. Codes: ErrNotFound (the caller has no such lease), ErrReceiptExpired.
func (c Caller) AckOne(ctx context.Context, target Target) error {
	queue, receipt, err := c.find(ctx, capability.OpAck, target)
	if err == nil {
		err = driver.At(c.Ack(ctx, queue, []string{receipt}), 0)
	}
	unknown := errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrReceiptExpired)
	if unknown && queue != "" && c.broker.traces.acked(queueKey{c.tenant, queue}, target.ID, c.holder) {
		return c.mayStillAck(ctx, queue, target)
	}
	return err
}

// mayStillAck authorises a repeated ack. The token was valid at the first one, or that
// would have failed.
func (c *Caller) mayStillAck(ctx context.Context, queue string, target Target) error {
	request := c.request(capability.OpAck, queue)
	request.Receipt = target.Receipt
	request.Lease = verify.Lease{Token: c.holder.token, TakenAt: c.broker.start}
	_, err := c.authorizeRequest(ctx, request)
	return err
}

// NackOne nacks one delivery, which it finds as AckOne does. It ignores nack.Receipt.
func (c Caller) NackOne(ctx context.Context, target Target, nack Nack) error {
	queue, receipt, err := c.find(ctx, capability.OpNack, target)
	if err != nil {
		return err
	}
	nack.Receipt = receipt
	return driver.At(c.Nack(ctx, queue, []Nack{nack}), 0)
}

// ExtendOne extends one delivery, which it finds as AckOne does, and returns the granted
// visibility. It ignores extension.Receipt.
func (c Caller) ExtendOne(ctx context.Context, target Target, extension Extension) (time.Duration, error) {
	queue, receipt, err := c.find(ctx, capability.OpExtend, target)
	if err != nil {
		return 0, err
	}
	extension.Receipt = receipt
	granted, err := c.Extend(ctx, queue, []Extension{extension})
	if err != nil {
		return 0, driver.At(err, 0)
	}
	return granted[0], nil
}

// DeadLetterOne dead-letters one delivery, which it finds as AckOne does.
func (c Caller) DeadLetterOne(ctx context.Context, target Target, request DeadLetterRequest) error {
	queue, receipt, err := c.find(ctx, capability.OpNack, target)
	if err != nil {
		return err
	}
	request.Receipt = receipt
	return driver.At(c.DeadLetter(ctx, queue, []DeadLetterRequest{request}), 0)
}

// find completes a target. With an error it still returns the queue, if it is known.
func (c *Caller) find(ctx context.Context, operation capability.Operation, target Target) (queue, receipt string, err error) {
	b := c.broker
	queue = target.Queue
	if queue == "" {
		if queue = b.findQueueOf(c.tenant, target.ID); queue == "" || !c.mayLearn(ctx, operation, queue, target) {
			return "", "", c.unknown(ctx, operation, target)
		}
	}
	if target.Receipt != "" {
		return queue, target.Receipt, c.checkReceiptFor(queue, target)
	}
	key := queueKey{c.tenant, queue}
	q := b.queues.shard(key).acquire(key)
	if q == nil {
		return queue, "", c.unknown(ctx, operation, target)
	}
	defer func() { q.release(b.now()) }()
	held, ok := q.leases.find(target.ID, b.now())
	if !ok || held.holder != c.holder {
		return queue, "", c.unknown(ctx, operation, target)
	}
	id, sealKey := b.receipts.current()
	if sealKey == nil {
		return queue, "", &driver.Error{Code: driver.ErrUnavailable, Op: operation.String(), Queue: queue, Detail: "no key to seal receipts with; the key ring is empty"}
	}
	return queue, string(b.receipts.append(nil, id, sealKey, q.backend, held.receipt, receiptOwner{held.holder.token, held.takenAt})), nil
}

// mayLearn reports whether the caller may be told that a message is in a queue which
// it has not named: because its token covers the queue, or has received the message.
// Otherwise the message is as unknown as one that does not exist.
func (c *Caller) mayLearn(ctx context.Context, operation capability.Operation, queue string, target Target) bool {
	_, err := c.broker.verifier.Authorize(ctx, c.token, c.request(operation, queue))
	switch reason := capability.ReasonOf(err); {
	case err == nil, reason == verify.ReasonReceipt: // which is looked at after the queue
		return true
	case operation == capability.OpAck && (reason == capability.ReasonRevoked || reason == capability.ReasonKeyRetired):
		return c.hasTaken(queue, target)
	}
	return false
}

// hasTaken reports whether the caller's token took the delivery, or acked it recently.
func (c *Caller) hasTaken(queue string, target Target) bool {
	b, key := c.broker, queueKey{c.tenant, queue}
	if b.traces.acked(key, target.ID, c.holder) {
		return true
	}
	if target.Receipt != "" {
		backend, err := backendName(c.tenant, queue)
		_, by, ok := b.receipts.open(target.Receipt, backend)
		return err == nil && ok && by.token == c.holder.token
	}
	q := b.queues.shard(key).acquire(key)
	if q == nil {
		return false
	}
	defer func() { q.release(b.now()) }()
	held, ok := q.leases.find(target.ID, b.now())
	return ok && held.holder == c.holder
}

// checkReceiptFor refuses a receipt of another message than the target.
func (c *Caller) checkReceiptFor(queue string, target Target) error {
	backend, err := backendName(c.tenant, queue)
	if err != nil {
		return err
	}
	if r, _, ok := c.broker.receipts.open(target.Receipt, backend); ok && target.ID != "" && r.Handle != target.ID {
		return &driver.Error{Code: driver.ErrInvalid, Op: "settle", Queue: queue, MessageID: target.ID, Field: "receipt", Detail: "belongs to another message"}
	}
	return nil
}

// unknown returns the error for a missing lease. A caller without a token for the queue
// learns nothing more.
func (c *Caller) unknown(ctx context.Context, operation capability.Operation, target Target) error {
	_, err := c.broker.verifier.Authorize(ctx, c.token, c.request(operation, target.Queue))
	hidden := target.Queue == "" && errors.Is(err, driver.ErrForbidden)
	void := capability.ReasonOf(err) == capability.ReasonRevoked || capability.ReasonOf(err) == capability.ReasonKeyRetired
	if err != nil && !hidden && !(void && operation == capability.OpAck) {
		c.refused(ctx, c.request(operation, target.Queue), err)
		return err
	}
	return &driver.Error{
		Code: driver.ErrNotFound, Op: operation.String(), Queue: target.Queue, MessageID: target.ID,
		Detail: "this token has no lease of the message at this daemon; pass the receipt",
	}
}

// findQueueOf returns the queue of a tenant that is known to hold a message.
func (b *Broker) findQueueOf(tenant, id string) string {
	if name := b.traces.queueOf(tenant, id); name != "" {
		return name
	}
	now := b.now()
	for _, q := range b.queues.all() {
		if q.tenant == tenant {
			if _, ok := q.leases.find(id, now); ok {
				return q.name
			}
		}
	}
	return ""
}

// queueOf returns the queue of a tenant that a message was last seen in.
func (l *traceTable) queueOf(tenant, id string) string {
	message, ok := parseMessageID(id)
	if !ok {
		return ""
	}
	r := l.ring(message)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.entries {
		i = (r.next + len(r.entries) - 1 - i) % len(r.entries)
		if q := r.queues[i]; q != nil && r.entries[i].message == message && q.tenant == tenant {
			return q.name
		}
	}
	return ""
}
