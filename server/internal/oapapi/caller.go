package oapapi

import (
	"context"
	"iter"
	"maps"
	"net"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// caller does what the token of a connection allows. Its errors are errElsewhere if another
// daemon has to be asked.
type caller struct {
	broker *broker.Broker
	user   broker.Caller
	sealed bool // deliveries have their seals
}

// authenticate returns the caller of a token in its binary form. The token must be genuine
// and valid now; what it allows is decided with each operation, as is whether it is still
// valid. Codes: ErrUnauthenticated, ErrForbidden, ErrUnavailable.
func authenticate(ctx context.Context, b *broker.Broker, token []byte, from net.Conn) (*caller, error) {
	parsed, err := capability.ParseBinary(token)
	if err != nil {
		return nil, err
	}
	user := b.Caller(parsed, broker.OriginOf(from))
	if err := user.Genuine(ctx); err != nil {
		return nil, err
	}
	user.Arrive(ctx)
	return &caller{broker: b, user: user}, nil
}

// withSeals returns the same caller, whose deliveries have oap.AttributeSeal.
func (c *caller) withSeals() *caller {
	sealed := *c
	sealed.sealed = true
	return &sealed
}

// answering returns the same caller, whose receives count against a share of memory until
// written is called, when everything that it has received so far was written.
func (c *caller) answering() (counted *caller, written func()) {
	answers := new(broker.Answers)
	return &caller{broker: c.broker, user: c.user.Answering(answers), sealed: c.sealed}, answers.Done
}

// on returns the same caller, for which a queue exists only while it is the one that the
// binding is bound to.
func (c *caller) on(binding *broker.Binding) *caller {
	return &caller{broker: c.broker, user: c.user.On(binding), sealed: c.sealed}
}

// elsewhere returns err, or errElsewhere if another daemon has to be asked.
func elsewhere(err error) error {
	if broker.NotDone(err) {
		return errElsewhere
	}
	return err
}

// sendFirst sends to a queue that did not exist when it was opened, and creates it if it
// still does not. It blocks.
func (c *caller) sendFirst(ctx context.Context, queue string, messages []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := c.user.Send(ctx, queue, brokerMessages(messages))
	return sent, elsewhere(err)
}

func brokerMessages(messages []driver.Outgoing) []broker.Outgoing {
	out := make([]broker.Outgoing, len(messages))
	for i := range messages {
		out[i].Outgoing = messages[i]
	}
	return out
}

// nothing returns the error of a receive that has brought no message.
func (c *caller) nothing(req driver.ReceiveRequest, err error) error {
	if err == nil && req.Wait > 0 && c.broker.State() >= broker.StateSettling {
		return errElsewhere // it waits there
	}
	return elsewhere(err)
}

// delivery returns a delivery as the client gets it.
func (c *caller) delivery(d *broker.Delivery) driver.Delivery {
	out := driver.Delivery{Message: d.Message, Receipt: driver.Receipt{Handle: d.Receipt}, SlotPending: d.SlotPending}
	if c.sealed {
		out.Attributes = withSeal(d)
	}
	return out
}

// withSeal returns the attributes of a delivery and its seal. Those of the message are
// shared, and must not be changed.
func withSeal(d *broker.Delivery) map[string]string {
	attributes := make(map[string]string, len(d.Attributes)+1)
	maps.Copy(attributes, d.Attributes)
	attributes[oap.AttributeSeal] = oap.EncodeSeal(&oap.Seal{
		SentAt: d.Seal.SentAt, HashChain: d.Seal.HashChain, Signature: d.Seal.Signature,
		IdemKey: d.Seal.IdemKey, Correlation: d.Seal.CorrelationID(&d.Message),
	})
	return attributes
}

func (c *caller) startNack(ctx context.Context, r *completion.Round, queue string, nacks []driver.Nack, done completion.Settled) {
	out := make([]broker.Nack, len(nacks))
	for i, n := range nacks {
		out[i] = broker.Nack{Receipt: n.Receipt.Handle, Delay: n.Delay, Cause: n.Cause, Mode: n.Mode}
	}
	c.user.StartNack(ctx, r, queue, out, done)
}

func (c *caller) startExtend(ctx context.Context, r *completion.Round, queue string, extensions []driver.Extension, done completion.Extended) {
	c.user.StartExtend(ctx, r, queue, brokerExtensions(extensions), done)
}

func brokerExtensions(extensions []driver.Extension) []broker.Extension {
	out := make([]broker.Extension, len(extensions))
	for i, e := range extensions {
		out[i] = broker.Extension{Receipt: e.Receipt.Handle, Visibility: e.Visibility, Progress: e.Progress}
	}
	return out
}

func (c *caller) startDeadLetter(ctx context.Context, r *completion.Round, queue string, requests []driver.DeadLetterRequest, done completion.Settled) {
	out := make([]broker.DeadLetterRequest, len(requests))
	for i, d := range requests {
		out[i] = broker.DeadLetterRequest{Receipt: d.Receipt.Handle, Reason: d.Reason, Error: d.Error, ErrorType: d.ErrorType}
	}
	c.user.StartDeadLetter(ctx, r, queue, out, done)
}

// deadLetters yields the dead letters of a queue, and peek messages of it.
func (c *caller) deadLetters(ctx context.Context, queue string) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		for seen, err := range c.user.DeadLetters(ctx, queue) {
			if !yield(seen.DeadLetter, elsewhere(err)) {
				return
			}
		}
	}
}

func (c *caller) peek(ctx context.Context, queue string, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		for seen, err := range c.user.Peek(ctx, queue, query) {
			if !yield(seen.Peeked, elsewhere(err)) {
				return
			}
		}
	}
}

// queues yields the names of the queues that the caller may see.
func (c *caller) queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range c.user.Queues(ctx) {
			if !yield(name, elsewhere(err)) {
				return
			}
		}
	}
}
