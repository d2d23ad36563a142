package remotebox

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A Verification has messages verified where they are received: the payload, the
// queue, the time, the dedup key and the attributes must give the hash chain that
// the message was sealed with when it was sent, and the signature, if one is demanded,
// must fit them, the reply address, the group and the correlation id; see package
// envelope. A daemon does
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
	// MinSignature is the lowest version of signatures that is accepted, with Trusted:
	// set envelope.SignatureV2 when all senders have it. Under version 1 the reply
	// address, the group and the correlation id can be changed. 0 accepts every version.
	MinSignature int
	// MaxAge bounds, with Trusted, how long before its sending to the queue a message
	// may have been signed, so that it cannot be sent again later by others. It should
	// not exceed the dedup window of the queue, which refuses repeats until then. 0 means
	// 300 seconds for signatures of version 2, and no bound for version 1; a negative
	// value means no bound.
	MaxAge time.Duration
	// Seen, if it is set, is called with the envelope of each message before that is
	// handed out. It must not block, and may be called by several goroutines at once.
	Seen func(e envelope.Envelope)
	// SeenSigned is Seen for messages whose signature was verified, with its version.
	SeenSigned func(e envelope.Envelope, version int)
}

// defaultMaxAge is the default of Verification.MaxAge: the default dedup window of a
// daemon.
const defaultMaxAge = 300 * time.Second

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
		ID: d.ID, Queue: queue, SentAt: seal.SentAt, DedupKey: seal.IdemKey, BodyHash: envelope.HashBody(d.Body),
		Attributes: d.Attributes, CorrelationID: d.CorrelationID, ReplyTo: d.ReplyTo, Group: d.Group, Attempt: d.Deliveries,
		HashChain: seal.HashChain, Signature: seal.Signature,
	}
	version, err := v.verify(&e, d)
	if err != nil {
		return err
	}
	e.CorrelationID = seal.Correlation // the daemon's own, if the sender gave none
	if v.Seen != nil {
		v.Seen(e)
	}
	if v.SeenSigned != nil && version > 0 {
		v.SeenSigned(e, version)
	}
	return nil
}

// verify verifies the envelope of a delivery, and returns the version of its signature,
// 0 if none is demanded.
func (v *Verification) verify(e *envelope.Envelope, d *driver.Delivery) (version int, err error) {
	if len(v.Trusted) == 0 {
		return 0, e.Verify(d.Body)
	}
	if version, err = e.VerifySigned(d.Body, v.Trusted...); err != nil {
		return 0, err
	}
	if version < v.MinSignature {
		return 0, integrity(e.Queue, d, fmt.Sprintf("its signature is of version %d, and %d is demanded", version, v.MinSignature))
	}
	maxAge := v.MaxAge
	if maxAge == 0 && version >= envelope.SignatureV2 {
		maxAge = defaultMaxAge
	}
	return version, e.CheckFresh(d.EnqueuedAt, time.Now(), maxAge)
}

func integrity(queue string, d *driver.Delivery, detail string) error {
	return &driver.Error{Code: driver.ErrIntegrity, Op: "verify", Queue: queue, MessageID: d.ID, Detail: detail}
}

// verified returns the deliveries that are what was sent, if Options.Verify asks for it.
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
		_ = q.DeadLetter(ctx, []driver.DeadLetterRequest{{
			Receipt: d.Receipt, Reason: driver.ReasonIntegrity, Error: damage.Error(), ErrorType: string(driver.ErrIntegrity),
		}})
		return
	}
	_ = q.Nack(ctx, []driver.Nack{{Receipt: d.Receipt, Cause: damage.Error()}})
}
