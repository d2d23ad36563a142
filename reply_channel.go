package mailbox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A ReplyChannel takes one reply to one message and does not settle the message: the
// worker acks when it is done. Make one with NewReplyChannel. It is safe for concurrent
// use: of several replies one is sent, and the others return ErrReplyAlreadySent.
type ReplyChannel[R any] struct {
	request request
	codec   Codec[R]
	state   atomic.Uint32
}

// request is the part of Message that a channel needs, without its type parameter.
type request interface {
	answer(ctx context.Context, reply *driver.Outgoing) error
	open(ctx context.Context) (bool, error)
}

// A channel is open until the first send, and again if the send fails and can be
// repeated.
const (
	channelOpen uint32 = iota
	channelSending
	channelClosed
)

// NewReplyChannel returns the channel for the one reply to message, encoded with codec;
// nil means JSON. It does no I/O. If the message has no reply address, Send returns
// ErrNoReplyTo.
func NewReplyChannel[R, T any](message *Message[T], codec Codec[R]) *ReplyChannel[R] {
	return &ReplyChannel[R]{request: message, codec: codec}
}

// Send sends the reply. It blocks as a send does. After an error that is not
// one of the ErrReply codes it can be repeated. Codes: those of Reply, without
// those of acking.
func (c *ReplyChannel[R]) Send(ctx context.Context, value R) error {
	reply, err := encodeReply(c.codec, value, nil)
	if err != nil {
		return err
	}
	return c.send(ctx, &reply)
}

// Fail sends an error, which must not be nil, as the reply; see ReplyError.
func (c *ReplyChannel[R]) Fail(ctx context.Context, cause error) error {
	if cause == nil {
		return &Error{Code: ErrInvalid, Op: opReply, Field: "cause", Detail: "is nil"}
	}
	return c.send(ctx, &driver.Outgoing{Attributes: NewFailure(cause).attributes()})
}

func (c *ReplyChannel[R]) send(ctx context.Context, reply *driver.Outgoing) error {
	if !c.state.CompareAndSwap(channelOpen, channelSending) {
		return &Error{Code: ErrReplyAlreadySent, Op: opReply}
	}
	err := c.request.answer(ctx, reply)
	if err == nil || isFinal(err) {
		c.state.Store(channelClosed)
	} else {
		c.state.Store(channelOpen)
	}
	return err
}

// Open reports whether a reply is still wanted: none was sent, and the slot, if
// the address is one, has no answer, was not cancelled and has not expired. It
// asks the reply store, unless the message was received this moment together with the
// state of its slot. Codes: ErrUnavailable.
func (c *ReplyChannel[R]) Open(ctx context.Context) (bool, error) {
	if c.state.Load() != channelOpen {
		return false, nil
	}
	return c.request.open(ctx)
}

// open reports whether a reply to the message is still wanted.
func (m *Message[T]) open(ctx context.Context) (bool, error) {
	if m != nil && m.origin != nil {
		return m.origin.open(ctx)
	}
	if m == nil || m.mailbox == nil || m.ReplyTo == "" || m.Settled() {
		return false, nil
	}
	id, isSlot := driver.SlotID(m.ReplyTo)
	if !isSlot {
		return true, nil
	}
	if m.slotSeen && m.slot.Load() == slotWaits && time.Since(m.receivedAt) < slotKnownFor {
		return true, nil
	}
	return m.wantsAnswer(ctx, id)
}

// slotKnownFor is how long the state of a slot that was read with its request counts. A
// request that was received in a batch may be served much later, and be cancelled
// meanwhile.
const slotKnownFor = 10 * time.Millisecond

// sharesSlots reports whether the queue reads slots of the mailbox's reply store.
func (m *Mailbox[T]) sharesSlots() bool {
	store, ok := m.replies.(driver.LinkedReplyStore)
	return ok && store.LinkedTo(m.Queue())
}
