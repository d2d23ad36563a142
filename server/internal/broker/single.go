package broker

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A Target names one delivery the way people do: by the id of the message.
type Target struct {
	// Topic may be empty if the message was received through this broker and not
	// long ago.
	Topic string
	ID    string
	// Receipt may be empty if the caller's token took the delivery through this
	// broker.
	Receipt string
}

// AckOne acks one delivery forgivingly: without a receipt it acts on the current
// lease, if exactly the same token took it, and an ack repeated for a message that the
// token acked not long ago works again. Otherwise it is like Ack. Codes:
// ErrNotFound (there is no such lease of the caller's), ErrReceiptExpired.
func (c Caller) AckOne(ctx context.Context, target Target) error {
	topic, receipt, err := c.find(ctx, capability.OpAck, target)
	if err == nil {
		err = driver.At(c.Ack(ctx, topic, []string{receipt}), 0)
	}
	unknown := errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrReceiptExpired)
	if unknown && topic != "" && c.broker.life.acked(topicKey{c.tenant, topic}, target.ID, c.holder) {
		return c.mayStillAck(ctx, topic, target)
	}
	return err
}

// mayStillAck authorises a repeated ack. The first one was taken before the
// token became void, or it would not have worked.
func (c *Caller) mayStillAck(ctx context.Context, topic string, target Target) error {
	request := c.request(capability.OpAck, topic)
	request.Receipt = target.Receipt
	request.Lease = capability.Lease{Token: c.holder.token, TakenAt: c.broker.start}
	_, err := c.authorizeRequest(ctx, request)
	return err
}

// NackOne nacks one delivery, finding it as AckOne does. nack.Receipt is not
// looked at.
func (c Caller) NackOne(ctx context.Context, target Target, nack Nack) error {
	topic, receipt, err := c.find(ctx, capability.OpNack, target)
	if err != nil {
		return err
	}
	nack.Receipt = receipt
	return driver.At(c.Nack(ctx, topic, []Nack{nack}), 0)
}

// ExtendOne extends one delivery, finding it as AckOne does, and returns what was
// granted.
func (c Caller) ExtendOne(ctx context.Context, target Target, visibility time.Duration) (time.Duration, error) {
	topic, receipt, err := c.find(ctx, capability.OpExtend, target)
	if err != nil {
		return 0, err
	}
	granted, err := c.Extend(ctx, topic, []Extension{{receipt, visibility}})
	if err != nil {
		return 0, driver.At(err, 0)
	}
	return granted[0], nil
}

// BuryOne sends one delivery to the dead letters, finding it as AckOne does.
func (c Caller) BuryOne(ctx context.Context, target Target, burial Burial) error {
	topic, receipt, err := c.find(ctx, capability.OpNack, target)
	if err != nil {
		return err
	}
	burial.Receipt = receipt
	return driver.At(c.Bury(ctx, topic, []Burial{burial}), 0)
}

// find completes a target. The topic is returned with an error too, if it is
// known.
func (c *Caller) find(ctx context.Context, operation capability.Operation, target Target) (topic, receipt string, err error) {
	b := c.broker
	topic = target.Topic
	if topic == "" {
		if topic = b.whereabouts(c.tenant, target.ID); topic == "" || !c.mayLearn(ctx, operation, topic, target) {
			return "", "", c.unknown(ctx, operation, target)
		}
	}
	if target.Receipt != "" {
		return topic, target.Receipt, c.checkReceiptFor(topic, target)
	}
	key := topicKey{c.tenant, topic}
	t := b.topics.shard(key).acquire(key)
	if t == nil {
		return topic, "", c.unknown(ctx, operation, target)
	}
	defer func() { t.release(b.now()) }()
	held, ok := t.leases.find(target.ID, b.now())
	if !ok || held.holder != c.holder {
		return topic, "", c.unknown(ctx, operation, target)
	}
	id, sealKey := b.receipts.current()
	if sealKey == nil {
		return topic, "", &driver.Error{Code: driver.ErrUnavailable, Op: operation.String(), Queue: topic, Detail: "there is no key to seal receipts with"}
	}
	return topic, string(b.receipts.append(nil, id, sealKey, t.backend, held.receipt, taking{held.holder.token, held.takenAt})), nil
}

// mayLearn reports whether the caller may be told that a message is in a queue which
// it has not named: because its token covers the queue, or has received the message.
// Otherwise the message is as unknown as one that does not exist.
func (c *Caller) mayLearn(ctx context.Context, operation capability.Operation, topic string, target Target) bool {
	_, err := c.broker.verifier.Authorize(ctx, c.token, c.request(operation, topic))
	switch reason := capability.ReasonOf(err); {
	case err == nil, reason == capability.ReasonReceipt: // which is looked at after the queue
		return true
	case operation == capability.OpAck && (reason == capability.ReasonRevoked || reason == capability.ReasonKeyRetired):
		return c.hasTaken(topic, target)
	}
	return false
}

// hasTaken reports whether the delivery was taken with the caller's token, or acked
// with it not long ago.
func (c *Caller) hasTaken(topic string, target Target) bool {
	b, key := c.broker, topicKey{c.tenant, topic}
	if b.life.acked(key, target.ID, c.holder) {
		return true
	}
	if target.Receipt != "" {
		backend, err := backendName(c.tenant, topic)
		_, by, ok := b.receipts.open(target.Receipt, backend)
		return err == nil && ok && by.token == c.holder.token
	}
	t := b.topics.shard(key).acquire(key)
	if t == nil {
		return false
	}
	defer func() { t.release(b.now()) }()
	held, ok := t.leases.find(target.ID, b.now())
	return ok && held.holder == c.holder
}

// checkReceiptFor refuses a receipt that is of another message than it is shown
// for.
func (c *Caller) checkReceiptFor(topic string, target Target) error {
	backend, err := backendName(c.tenant, topic)
	if err != nil {
		return err
	}
	if r, _, ok := c.broker.receipts.open(target.Receipt, backend); ok && target.ID != "" && r.Handle != target.ID {
		return &driver.Error{Code: driver.ErrInvalid, Op: "settle", Queue: topic, MessageID: target.ID, Field: "receipt", Detail: "is that of another message"}
	}
	return nil
}

// unknown is the error for a lease that is not there. Who has no token for it
// learns no more than that.
func (c *Caller) unknown(ctx context.Context, operation capability.Operation, target Target) error {
	_, err := c.broker.verifier.Authorize(ctx, c.token, c.request(operation, target.Topic))
	hidden := target.Topic == "" && errors.Is(err, driver.ErrForbidden)
	void := capability.ReasonOf(err) == capability.ReasonRevoked || capability.ReasonOf(err) == capability.ReasonKeyRetired
	if err != nil && !hidden && !(void && operation == capability.OpAck) {
		c.refused(ctx, c.request(operation, target.Topic), err)
		return err
	}
	return &driver.Error{
		Code: driver.ErrNotFound, Op: operation.String(), Queue: target.Topic, MessageID: target.ID,
		Detail: "no lease of it was taken with this token through this daemon; show the receipt",
	}
}

// whereabouts returns the topic of a tenant in which a message is known to be.
func (b *Broker) whereabouts(tenant, id string) string {
	if name := b.life.topicOf(tenant, id); name != "" {
		return name
	}
	now := b.now()
	for _, t := range b.topics.all() {
		if t.tenant == tenant {
			if _, ok := t.leases.find(id, now); ok {
				return t.name
			}
		}
	}
	return ""
}

// topicOf returns the topic of a tenant that a message was last seen in.
func (l *lifeBook) topicOf(tenant, id string) string {
	message, ok := parseMessageID(id)
	if !ok {
		return ""
	}
	r := l.ring(message)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.entries {
		e := &r.entries[(r.next+len(r.entries)-1-i)%len(r.entries)]
		if e.at != 0 && e.message == message && e.topic.tenant == tenant {
			return e.topic.name
		}
	}
	return ""
}
