package remotebox

import (
	"context"
	"crypto/ed25519"
	"maps"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A Verification has messages verified where they are received: the payload, the
// queue, the time, the dedup key and the attributes must give the hash chain that
// the message was sealed with when it was sent; see package envelope. A daemon does
// that too; this is for who wants to know it of the way from the daemon as well, or
// trusts senders and not daemons.
//
// A message that is not what was sent is not handed out. It goes to the dead letters
// with reason integrity, or is given back where there are none; if nothing else was
// received, the error is ErrIntegrity.
type Verification struct {
	// Trusted are keys of senders. If there are any, every message must be signed
	// with one of them.
	Trusted []ed25519.PublicKey
	// Seen, if it is set, is called with the envelope of each message before that is
	// handed out. It must not block, and may be called by several goroutines at once.
	Seen func(e envelope.Envelope)
}

// check takes the seal out of a delivery and verifies it. The error is ErrIntegrity.
func (v *Verification) check(queue string, d *driver.Delivery) error {
	text, sealed := d.Attributes[oap.AttributeSeal]
	if !sealed {
		return integrity(queue, d, "the message came without a seal")
	}
	if len(d.Attributes) == 1 {
		d.Attributes = nil
	} else {
		d.Attributes = maps.Clone(d.Attributes)
		delete(d.Attributes, oap.AttributeSeal)
	}
	seal, err := oap.DecodeSeal(text)
	if err != nil {
		return integrity(queue, d, "its seal cannot be read")
	}
	e := envelope.Envelope{
		ID: d.ID, Topic: queue, SentAt: seal.SentAt, IdemKey: seal.IdemKey, PayloadHash: envelope.HashPayload(d.Body),
		Attributes: d.Attributes, CorrelationID: seal.Correlation, Attempt: d.Deliveries,
		HashChain: seal.HashChain, Signature: seal.Signature,
	}
	if err := e.Verify(d.Body, v.Trusted...); err != nil {
		return err
	}
	if v.Seen != nil {
		v.Seen(e)
	}
	return nil
}

func integrity(queue string, d *driver.Delivery, detail string) error {
	return &driver.Error{Code: driver.ErrIntegrity, Op: "verify", Queue: queue, MessageID: d.ID, Detail: detail}
}

// verified returns the deliveries that are what was sent, if that is to be looked at.
func (q *queue) verified(ctx context.Context, got []driver.Delivery) ([]driver.Delivery, error) {
	verify := q.backend.options.Verify
	if verify == nil {
		return got, nil
	}
	good := got[:0]
	var damage error
	for i := range got {
		if err := verify.check(q.name, &got[i]); err != nil {
			damage = err
			q.setAside(ctx, &got[i], err)
			continue
		}
		good = append(good, got[i])
	}
	if len(good) == 0 {
		return nil, damage
	}
	return good, nil
}

// setAside moves a message that is not what was sent to the dead letters. Where that
// fails it comes back when its visibility is over.
func (q *queue) setAside(ctx context.Context, d *driver.Delivery, damage error) {
	ctx = context.WithoutCancel(ctx)
	if q.Traits().DeadLetters {
		_ = (&deadLetters{q}).DeadLetter(ctx, []driver.Burial{{
			Receipt: d.Receipt, Reason: driver.ReasonIntegrity, Error: damage.Error(), ErrorType: string(driver.ErrIntegrity),
		}})
		return
	}
	_ = q.Nack(ctx, []driver.Nack{{Receipt: d.Receipt, Cause: damage.Error()}})
}
