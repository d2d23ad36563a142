package oapapi

import (
	"context"
	"iter"
	"maps"
	"net"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// Brokered is the Authenticate of a daemon: connections are callers of b.
//
// The capability is the binary form of a token. It must be genuine and good now;
// what it allows is decided with each operation, as is whether it is still good.
func Brokered(b *broker.Broker) Authenticate {
	return func(ctx context.Context, token []byte, from net.Conn) (Caller, error) {
		parsed, err := capability.ParseBinary(token)
		if err != nil {
			return nil, err
		}
		caller := b.Caller(parsed, broker.OriginOf(from))
		if err := caller.Genuine(ctx); err != nil {
			return nil, err
		}
		caller.Arrive(ctx)
		return brokered{broker: b, maker: caller, user: caller.Existing()}, nil
	}
}

// brokered makes a Caller of a broker.Caller.
type brokered struct {
	broker      *broker.Broker
	maker, user broker.Caller // sends of maker make topics that are not there
	sealed      bool          // deliveries have their seals
}

// Sealed implements Sealer.
func (b brokered) Sealed() Caller {
	b.sealed = true
	return b
}

// Returning implements Returner.
func (b brokered) Returning() Caller {
	b.user = b.user.Returning()
	return b
}

// Answering implements Answerer.
func (b brokered) Answering() (Caller, func()) {
	answers := new(broker.Answers)
	b.user = b.user.Answering(answers)
	return b, answers.Done
}

// Owner implements Owned.
func (b brokered) Owner() [2]share.Key { return b.user.Owner() }

// Strict implements Divider.
func (b brokered) Strict(topic string) bool { return b.user.Strict(topic) }

var (
	_ Caller   = brokered{}
	_ Divider  = brokered{}
	_ Owned    = brokered{}
	_ Answerer = brokered{}
	_ Maker    = brokered{}
	_ Binder   = brokered{}
	_ Sealer   = brokered{}
	_ Returner = brokered{}
)

// elsewhere is err, or that another daemon has to be asked.
func elsewhere(err error) error {
	if broker.NotDone(err) {
		return errElsewhere
	}
	return err
}

// elsewhereToo is elsewhere, for what has a result.
func elsewhereToo[R any](result R, err error) (R, error) { return result, elsewhere(err) }

func (b brokered) Open(ctx context.Context, topic string) (driver.Traits, error) {
	return elsewhereToo(b.maker.Traits(ctx, topic))
}

// Identity implements Maker.
func (b brokered) Identity(ctx context.Context, topic string) (string, bool, error) {
	identity, exists, err := b.user.Identity(ctx, topic)
	return identity, exists, elsewhere(err)
}

// On implements Binder.
func (b brokered) On(binding *broker.Binding) Caller {
	b.maker, b.user = b.maker.On(binding), b.user.On(binding)
	return b
}

func (b brokered) Send(ctx context.Context, topic string, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return elsewhereToo(b.user.Send(ctx, topic, outgoing(msgs)))
}

// SendFirst implements Maker.
func (b brokered) SendFirst(ctx context.Context, topic string, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return elsewhereToo(b.maker.Send(ctx, topic, outgoing(msgs)))
}

func outgoing(msgs []driver.Outgoing) []broker.Outgoing {
	out := make([]broker.Outgoing, len(msgs))
	for i := range msgs {
		out[i].Outgoing = msgs[i]
	}
	return out
}

func (b brokered) Receive(ctx context.Context, topic string, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := b.user.Receive(ctx, topic, req)
	if len(got) == 0 {
		if err == nil && req.Wait > 0 && b.broker.State() >= broker.StateSettling {
			return nil, errElsewhere // it waits there
		}
		return nil, elsewhere(err)
	}
	deliveries := make([]driver.Delivery, len(got))
	for i := range got {
		deliveries[i] = driver.Delivery{Message: got[i].Message, Receipt: driver.Receipt{Handle: got[i].Receipt}}
		if b.sealed {
			deliveries[i].Attributes = withSeal(&got[i])
		}
	}
	return deliveries, err
}

// withSeal returns the attributes of a delivery and its seal. Those of the message
// are shared, and must not be changed.
func withSeal(d *broker.Delivery) map[string]string {
	attributes := make(map[string]string, len(d.Attributes)+1)
	maps.Copy(attributes, d.Attributes)
	attributes[oap.AttributeSeal] = oap.EncodeSeal(&oap.Seal{
		SentAt: d.Seal.SentAt, HashChain: d.Seal.HashChain, Signature: d.Seal.Signature,
		IdemKey: d.Seal.IdemKey, Correlation: d.Seal.CorrelationID,
	})
	return attributes
}

func (b brokered) Ack(ctx context.Context, topic string, receipts []driver.Receipt) error {
	texts := make([]string, len(receipts))
	for i := range receipts {
		texts[i] = receipts[i].Handle
	}
	return elsewhere(b.user.Ack(ctx, topic, texts))
}

func (b brokered) Nack(ctx context.Context, topic string, nacks []driver.Nack) error {
	out := make([]broker.Nack, len(nacks))
	for i, n := range nacks {
		out[i] = broker.Nack{Receipt: n.Receipt.Handle, Delay: n.Delay, Cause: n.Cause}
	}
	return elsewhere(b.user.Nack(ctx, topic, out))
}

func (b brokered) Extend(ctx context.Context, topic string, extensions []driver.Extension) ([]time.Duration, error) {
	out := make([]broker.Extension, len(extensions))
	for i, e := range extensions {
		out[i] = broker.Extension{Receipt: e.Receipt.Handle, Visibility: e.Visibility}
	}
	granted, err := b.user.Extend(ctx, topic, out)
	return granted, elsewhere(err)
}

func (b brokered) DeadLetter(ctx context.Context, topic string, burials []driver.DeadLetterRequest) error {
	out := make([]broker.DeadLetterRequest, len(burials))
	for i, d := range burials {
		out[i] = broker.DeadLetterRequest{Receipt: d.Receipt.Handle, Reason: d.Reason, Error: d.Error, ErrorType: d.ErrorType}
	}
	return elsewhere(b.user.DeadLetter(ctx, topic, out))
}

func (b brokered) DeadLetters(ctx context.Context, topic string) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		for looked, err := range b.user.DeadLetters(ctx, topic) {
			if !yield(looked.DeadLetter, elsewhere(err)) {
				return
			}
		}
	}
}

func (b brokered) Peek(ctx context.Context, topic string, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		for looked, err := range b.user.Peek(ctx, topic, query) {
			if !yield(looked.Peeked, elsewhere(err)) {
				return
			}
		}
	}
}

func (b brokered) Purge(ctx context.Context, topic string) (int, error) {
	return elsewhereToo(b.user.Purge(ctx, topic))
}

func (b brokered) Stats(ctx context.Context, topic string) (driver.Stats, error) {
	return elsewhereToo(b.user.Stats(ctx, topic))
}

func (b brokered) Redrive(ctx context.Context, topic string, ids []string, limit int) (int, error) {
	return elsewhereToo(b.user.Redrive(ctx, topic, ids, limit))
}

func (b brokered) Discard(ctx context.Context, topic string, ids []string) (int, error) {
	return elsewhereToo(b.user.Discard(ctx, topic, ids))
}

func (b brokered) PurgeDead(ctx context.Context, topic string) (int, error) {
	return elsewhereToo(b.user.PurgeDead(ctx, topic))
}

func (b brokered) ConfigureQueue(ctx context.Context, topic string, config driver.Config) error {
	return elsewhere(b.maker.Configure(ctx, topic, config))
}

func (b brokered) QueueConfig(ctx context.Context, topic string) (driver.Config, error) {
	return elsewhereToo(b.user.Config(ctx, topic))
}

func (b brokered) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for topic, err := range b.user.Queues(ctx) {
			if !yield(topic, elsewhere(err)) {
				return
			}
		}
	}
}

func (b brokered) DeleteQueue(ctx context.Context, topic string) error {
	return elsewhere(b.user.Delete(ctx, topic))
}

func (b brokered) Ping(ctx context.Context) error { return b.user.Ping(ctx) }
