package mailbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
)

const opReply = "reply"

// ExpectsReply reports whether the message has a reply address.
func (m *Message[T]) ExpectsReply() bool { return m.ReplyTo != "" }

// Reply sends value, encoded as JSON, to the reply address of the message.
//
// If the address is a mailbox, the reply has the message's correlation id, or its id if
// it has none. The message is not settled; more replies can be sent until it is.
//
// If the address is a reply slot, the message is acked after the reply is stored. If the
// worker stops in between, the next worker that receives the message acks it. If the
// slot accepts no answer any more, because it has one (ErrReplyAlreadySent), was
// cancelled (ErrReplyCancelled) or has expired (ErrReplyExpired), the message is acked
// too, and the error is returned. After any other error the message is not settled, and
// is delivered again unless the call is repeated. A slot takes one body and no options.
//
// It blocks as a send does. Further codes: ErrNoReplyTo if there is no address, or none
// that can be found; ErrSettled; those of Mailbox.Send and, for a slot, of Message.Ack.
func Reply[R, T any](ctx context.Context, message *Message[T], value R, options ...SendOption) error {
	return ReplyWith(ctx, message, JSON[R](), value, options...)
}

// ReplyWith is Reply with another codec.
func ReplyWith[R, T any](ctx context.Context, message *Message[T], codec Codec[R], value R, options ...SendOption) error {
	reply, err := encodeReply(codec, value, options)
	if err != nil {
		return err
	}
	return message.respond(ctx, &reply)
}

// ReplyError replies with an error, which must not be nil: the client gets a *Failure
// with its text and its kind.
func ReplyError[T any](ctx context.Context, message *Message[T], cause error) error {
	if cause == nil {
		return &Error{Code: ErrInvalid, Op: opReply, Field: "cause", Detail: "is nil"}
	}
	return message.respond(ctx, &driver.Outgoing{Attributes: NewFailure(cause).attributes()})
}

// AckUnanswered acks a request without an answer although its reply slot is open, for
// example after the error reply to a dead-lettered request could not be stored. Codes:
// ErrSettled, ErrReceiptExpired.
func (m *Message[T]) AckUnanswered(ctx context.Context) error {
	return m.perform(ctx, action{kind: OutcomeAck, unanswered: true})
}

// ReplyMailbox returns the mailbox that is the reply address of the message, to send any
// number of replies of type R until the message is settled. Replies without a correlation
// id get that of the message, or its id. A reply slot is a mailbox that takes one
// message. Sending to the mailbox never settles the message.
//
// The mailbox may be closed, and need not be: the resolver owns the open queue. It blocks
// if the resolver has to open a queue. Codes: ErrNoReplyTo if there is no address, or
// none that can be found; those of the resolver.
func ReplyMailbox[R, T any](ctx context.Context, message *Message[T], options *Options[R]) (*Mailbox[R], error) {
	queue, isSlot, err := message.replyQueue(ctx)
	if err != nil {
		return nil, err
	}
	box := New[R](message.ReplyTo, queue, options)
	if isSlot {
		box.hooks.Sending = nil // a slot cannot store attributes
	}
	return box, nil
}

// replyQueue returns the queue that replies to the message are sent to.
func (m *Message[T]) replyQueue(ctx context.Context) (queue driver.Queue, isSlot bool, err error) {
	if m != nil && m.origin != nil {
		return m.origin.replyQueue(ctx)
	}
	slot, isSlot, err := m.replySlot(ctx)
	if err != nil {
		return nil, false, err
	}
	if isSlot {
		return &replySlotQueue[T]{slot, m}, true, nil
	}
	queue, err = m.replyMailbox(ctx)
	return queue, false, err
}

func encodeReply[R any](codec Codec[R], value R, options []SendOption) (reply driver.Outgoing, err error) {
	if codec == nil {
		codec = JSON[R]()
	}
	reply.Body, err = codec.Encode(value)
	if err != nil {
		return reply, &Error{Code: ErrEncoding, Op: opReply, Detail: codec.ContentType(), Err: err}
	}
	if len(options) > 0 {
		applySend(&reply, options)
	}
	return reply, nil
}

// respond sends one reply, and acks the message if its slot accepts no more.
func (m *Message[T]) respond(ctx context.Context, reply *driver.Outgoing) error {
	if m != nil && m.origin != nil {
		return m.origin.respond(ctx, reply)
	}
	slot, isSlot, err := m.replySlot(ctx)
	switch {
	case err != nil:
		return err
	case isSlot:
		return m.answerAndAck(ctx, &slot, reply)
	}
	return m.answer(ctx, reply)
}

// answerAndAck writes the reply slot, and acks the message if the slot accepts no more.
func (m *Message[T]) answerAndAck(ctx context.Context, slot *replyslot.Queue, reply *driver.Outgoing) error {
	var ackErr error
	acked := false
	err := m.answerSlot(ctx, reply, func() error {
		acking, stored, err := slot.ResolveWithAck(ctx, m.mailbox.Queue(), reply)
		if stored == nil {
			return err
		}
		acked, ackErr = true, m.AckUnanswered(acking)
		return stored()
	})
	if m.slot.Load() == slotWaits {
		return err
	}
	if !acked {
		ackErr = m.Ack(ctx)
	}
	switch {
	case ackErr == nil || errors.Is(ackErr, ErrSettled):
		return err
	case err == nil:
		return ackErr
	}
	return errors.Join(err, ackErr)
}

// answer sends one reply and does not settle the message.
func (m *Message[T]) answer(ctx context.Context, reply *driver.Outgoing) error {
	if m != nil && m.origin != nil {
		return m.origin.answer(ctx, reply)
	}
	slot, isSlot, err := m.replySlot(ctx)
	if err != nil {
		return err
	}
	if isSlot {
		return m.answerSlot(ctx, reply, func() error { return slot.Resolve(ctx, reply) })
	}
	queue, err := m.replyMailbox(ctx)
	if err != nil {
		return err
	}
	traits := queue.Traits()
	if err := reply.Check(&traits); err != nil {
		return m.located(err)
	}
	_, err = queue.Send(ctx, []driver.Outgoing{*reply})
	_ = queue.Close() // the result of Send counts
	if err != nil {
		err = driver.At(err, 0)
	}
	return err
}

// answerSlot is answer for a slot, which resolve writes.
func (m *Message[T]) answerSlot(ctx context.Context, reply *driver.Outgoing, resolve func() error) error {
	if err := m.checkUnsettled(); err != nil {
		return err
	}
	start := startIf(m.mailbox.hooks.Replied != nil)
	err := resolve()
	if err == nil {
		m.slot.Store(slotAnswered)
	} else {
		m.noteSlot(err)
	}
	m.tellReplied(ctx, reply, start, err)
	return err
}

// checkUnsettled returns an error if the message cannot be replied to any more. A
// dead-lettered message can still be answered, with the error.
func (m *Message[T]) checkUnsettled() error {
	if known := m.slot.Load(); known != slotWaits {
		return &Error{Code: slotCodes[known], Op: opReply, Queue: m.mailbox.name, MessageID: m.ID}
	}
	if phase := m.phase.Load(); phase > phaseSettling && phase != phaseDead {
		return m.settledBefore(opReply, phase)
	}
	return nil
}

// replySlot returns the reply slot, if the address is one, or an error if no reply is
// possible.
func (m *Message[T]) replySlot(ctx context.Context) (slot replyslot.Queue, isSlot bool, err error) {
	switch {
	case m == nil:
		return slot, false, &Error{Code: ErrInvalid, Op: opReply, Field: "message", Detail: "is nil"}
	case m.mailbox == nil:
		return slot, false, &Error{Code: ErrInvalid, Op: opReply, MessageID: m.ID, Field: "message", Detail: "was not received from a mailbox"}
	}
	if err := m.mailbox.ready(ctx, opReply); err != nil {
		return slot, false, err
	}
	if m.ReplyTo == "" {
		return slot, false, m.noReplyTo("", nil)
	}
	slot.ID, isSlot = driver.SlotID(m.ReplyTo)
	slot.Store = m.mailbox.replies
	if isSlot && slot.Store == nil {
		return slot, false, m.noReplyTo("it names a reply slot, and this mailbox has no Options.Replies", ErrInvalid)
	}
	return slot, isSlot, nil
}

// replyMailbox returns the queue of the reply address.
func (m *Message[T]) replyMailbox(ctx context.Context) (*replyQueue[T], error) {
	if m.mailbox.resolver == nil {
		return nil, m.noReplyTo("it names a mailbox, and this one has no Options.Resolver", ErrInvalid)
	}
	queue, err := m.mailbox.resolver.Resolve(ctx, m.ReplyTo)
	if errors.Is(err, ErrUnresolved) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported) {
		return nil, m.noReplyTo("", err)
	}
	if err != nil {
		return nil, err
	}
	return &replyQueue[T]{Queue: queue, message: m}, nil
}

// Unanswerable reports whether err, the error of a reply, means that this mailbox can
// never reply to the address: the mailbox has no resolver or no reply store, the address
// is malformed or has a scheme that the resolver does not handle, or the sender may not
// use it. A well-formed address that names no queue at the moment is not unanswerable.
func Unanswerable(err error) bool {
	if errors.Is(err, ErrForbidden) {
		return true
	}
	return errors.Is(err, ErrNoReplyTo) && (errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported))
}

func (m *Message[T]) noReplyTo(detail string, cause error) error {
	return &Error{Code: ErrNoReplyTo, Op: opReply, Queue: m.mailbox.name, MessageID: m.ID, Detail: detail, Err: cause}
}

// checkAnswered returns ErrReplyExpected if the reply slot of the message waits for an
// answer. It asks the store, because an earlier delivery may have been answered.
func (m *Message[T]) checkAnswered(ctx context.Context) error {
	id, isSlot := driver.SlotID(m.ReplyTo)
	if !isSlot {
		return nil
	}
	wants, err := m.wantsAnswer(ctx, id)
	if err != nil {
		return err
	}
	if wants {
		return &Error{Code: ErrReplyExpected, Op: string(OutcomeAck), Queue: m.mailbox.name, MessageID: m.ID}
	}
	return nil
}

// wantsAnswer reports whether the slot waits for an answer. A mailbox without a store
// cannot know, and assumes that it does.
func (m *Message[T]) wantsAnswer(ctx context.Context, slotID string) (bool, error) {
	if m.slot.Load() != slotWaits {
		return false, nil
	}
	if m.mailbox.replies == nil {
		return true, nil
	}
	found, err := m.mailbox.replies.Get(ctx, slotID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	if err != nil { // the client does not wait any more, see replyslot.Queue
		found.State = driver.SlotExpired
	}
	m.noteSlot(found.State.WriteError(opReply, slotID))
	return m.slot.Load() == slotWaits, nil
}

// The known states of the reply slot of a message.
const (
	slotWaits uint32 = iota
	slotAnswered
	slotCancelled
	slotExpired
)

// slotCodes are the codes of further replies.
var slotCodes = [...]Code{
	slotAnswered: ErrReplyAlreadySent, slotCancelled: ErrReplyCancelled, slotExpired: ErrReplyExpired,
}

// isFinal reports whether err means that a slot accepts no answer any more.
func isFinal(err error) bool {
	return errors.Is(err, ErrReplyAlreadySent) || errors.Is(err, ErrReplyCancelled) || errors.Is(err, ErrReplyExpired)
}

// noteSlot records the state of the slot that follows from the error of a write.
func (m *Message[T]) noteSlot(err error) {
	if err == nil {
		return
	}
	for known, code := range slotCodes {
		if code != "" && errors.Is(err, code) {
			m.slot.Store(uint32(known))
		}
	}
}

// correlation returns the correlation id of replies to the message.
func (m *Message[T]) correlation() string {
	if m.CorrelationID != "" {
		return m.CorrelationID
	}
	return m.ID
}

// replyQueue is the queue that the replies to one message go to. It refuses replies to a
// settled message and sets the correlation id.
type replyQueue[T any] struct {
	driver.Queue
	message *Message[T]
}

func (q *replyQueue[T]) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	m := q.message
	if err := m.checkUnsettled(); err != nil {
		return nil, err
	}
	msgs = slices.Clone(msgs) // the caller owns the slice
	for i := range msgs {
		if msgs[i].CorrelationID == "" {
			msgs[i].CorrelationID = m.correlation()
		}
	}
	start := startIf(m.mailbox.hooks.Replied != nil)
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range msgs {
		m.tellReplied(ctx, &msgs[i], start, ErrorAt(err, i))
	}
	return sent, err
}

// replySlotQueue is replyQueue for a slot.
type replySlotQueue[T any] struct {
	replyslot.Queue
	message *Message[T]
}

func (q *replySlotQueue[T]) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return q.SendEach(msgs, func(msg *driver.Outgoing) error {
		return q.message.answerSlot(ctx, msg, func() error { return q.Resolve(ctx, msg) })
	})
}

func (m *Message[T]) tellReplied(ctx context.Context, reply *driver.Outgoing, start time.Time, err error) {
	replied := m.mailbox.hooks.Replied
	if replied == nil {
		return
	}
	replied(ctx, RepliedEvent{
		Queue: m.mailbox.name, MessageID: m.ID, ReplyTo: m.ReplyTo,
		Failure: FailureOf(reply.Attributes), Duration: time.Since(start), Err: err,
	})
}
