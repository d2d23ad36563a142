package mailbox

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Receipt names one delivery of one message.
type Receipt = driver.Receipt

// A Message is a message that was received and is held until it is settled or
// its visibility ends. Its fields are the receiver's own to read and change;
// changing them changes nothing elsewhere.
//
// A message is settled once: by Ack, Nack, Release or DeadLetter, whichever
// first succeeds or learns that the delivery is over (ErrReceiptExpired). From
// then on, and while another call is at it, settling and extending return
// ErrSettled without asking the backend. A call that fails in any other way,
// with ErrUnavailable or a context's error for example, leaves the message
// unsettled, so that it can be repeated. If a repeat then says
// ErrReceiptExpired, the first attempt may have worked after all.
//
// The methods may be called from many goroutines at once.
type Message[T any] struct {
	ID   string
	Body T
	// Receipt names this delivery to the backend.
	Receipt Receipt
	// Deliveries counts how often the message was handed out, this time
	// included: on its first delivery it is 1.
	Deliveries int
	// EnqueuedAt is when the message was sent, and FirstReceivedAt when it was
	// delivered for the first time; both in UTC.
	EnqueuedAt      time.Time
	FirstReceivedAt time.Time
	Attributes      map[string]string
	Group           string
	ReplyTo         string
	CorrelationID   string
	// LastError is the cause of the latest nack that gave one; empty if there
	// was none.
	LastError string

	mailbox    *Mailbox[T]
	receivedAt time.Time // zero unless a hook is told about settling
	granted    atomic.Int64
	phase      atomic.Uint32
	slot       atomic.Uint32 // what is known of the reply slot it names, if any
}

// A message is held until a settlement is under way, which ends it or, having
// failed, leaves it held. The phases from acked on are final.
const (
	phaseHeld uint32 = iota
	phaseSettling
	phaseAcked
	phaseNacked
	phaseReleased
	phaseDead
	phaseExpired
)

// phaseNames say in an ErrSettled what happened before.
var phaseNames = [...]string{
	phaseHeld:     "held",
	phaseSettling: "another call is settling it",
	phaseAcked:    "acked",
	phaseNacked:   "nacked",
	phaseReleased: "released",
	phaseDead:     "dead-lettered",
	phaseExpired:  "its receipt had expired",
}

// load makes m the message of a delivery, with the body that was decoded.
func (m *Message[T]) load(mailbox *Mailbox[T], delivery *driver.Delivery, body T, receivedAt time.Time) {
	m.ID = delivery.ID
	m.Body = body
	m.Receipt = delivery.Receipt
	m.Deliveries = delivery.Deliveries
	m.EnqueuedAt = delivery.EnqueuedAt
	m.FirstReceivedAt = delivery.FirstReceivedAt
	m.Attributes = ownAttributes(delivery.Attributes)
	m.Group = delivery.Group
	m.ReplyTo = delivery.ReplyTo
	m.CorrelationID = delivery.CorrelationID
	m.LastError = delivery.LastError
	m.mailbox = mailbox
	m.receivedAt = receivedAt
}

// ownAttributes copies attributes, because what a backend hands out is shared.
func ownAttributes(shared map[string]string) map[string]string {
	if len(shared) == 0 {
		return nil
	}
	return maps.Clone(shared)
}

// Ack removes the message for ever, as durably as the backend promises. A
// request that names a reply slot has to be answered first: see Reply. Codes:
// ErrReplyExpected, ErrSettled, ErrReceiptExpired.
func (m *Message[T]) Ack(ctx context.Context) error {
	return m.perform(ctx, action{kind: OutcomeAck})
}

// Nack gives the message back: it is ready again after delay, at the tail of
// the queue, or in a strict group at its own place. The text of cause, which
// may be nil, is kept as the message's last error. A message that has been
// delivered as often as the queue allows becomes a dead letter instead. Codes:
// ErrInvalid (the delay), ErrSettled, ErrReceiptExpired.
func (m *Message[T]) Nack(ctx context.Context, delay time.Duration, cause error) error {
	return m.perform(ctx, action{kind: OutcomeNack, duration: delay, cause: cause})
}

// Release gives the message back as if its visibility had just ended: it is
// ready at once, at its own place. Use it for messages that were not tried;
// the delivery has been counted all the same. Codes: ErrSettled,
// ErrReceiptExpired.
func (m *Message[T]) Release(ctx context.Context) error {
	return m.perform(ctx, action{kind: OutcomeRelease})
}

// DeadLetter sets the message aside as a dead letter, with the reason and the
// text and type of cause, which may be nil. Who waits for an answer can be told
// so afterwards, with ReplyError. Codes: ErrUnsupported where the
// backend keeps no dead letters, ErrInvalid (the reason), ErrFull when there
// are too many dead letters (nack it then), ErrSettled, ErrReceiptExpired.
func (m *Message[T]) DeadLetter(ctx context.Context, reason Reason, cause error) error {
	return m.perform(ctx, action{kind: OutcomeDeadLetter, reason: reason, cause: cause})
}

// Extend moves the end of the visibility to visibility from now, which may be
// earlier than it was. It may be called any number of times while the message
// is held, also from another goroutine than the one that settles it: what it
// loses to a settlement is ErrSettled, and ErrReceiptExpired always means that
// the lease was lost. A queue that bounds how long a message
// can be held may cut the extension: see Granted. Codes: ErrInvalid (the
// visibility), ErrSettled, ErrReceiptExpired.
func (m *Message[T]) Extend(ctx context.Context, visibility time.Duration) error {
	return m.perform(ctx, action{kind: extension, duration: visibility})
}

// Granted returns how long the latest extension that succeeded leased the message
// for, counted from that extension. It is less than was asked for where the queue
// bounds how long a message can be held, and 0 before the first extension.
func (m *Message[T]) Granted() time.Duration { return time.Duration(m.granted.Load()) }

// Settled reports whether the message is settled, or its receipt turned out to
// be expired when that was tried.
func (m *Message[T]) Settled() bool { return m.phase.Load() > phaseSettling }

// perform carries a out on this message alone.
func (m *Message[T]) perform(ctx context.Context, a action) error {
	if err := m.begin(ctx, a); err != nil {
		return err
	}
	batch := actionBatches.get()
	defer batch.free()
	batch.add(m.Receipt, a)
	start := startIf(m.mailbox.observes(a))
	granted, err := batch.send(ctx, m.mailbox.Queue(), a)
	if err != nil {
		err = driver.At(err, 0)
	}
	return m.end(ctx, a.with(granted, 0), start, err)
}

// begin returns why a cannot be tried on this message. If it returns nil, end
// must be called; until then no other call can settle the message. An extension does
// not block others.
func (m *Message[T]) begin(ctx context.Context, a action) error {
	op := string(a.kind)
	switch {
	case m == nil:
		return &Error{Code: ErrInvalid, Op: op, Field: "message", Detail: "is nil"}
	case m.mailbox == nil:
		return &Error{Code: ErrInvalid, Op: op, MessageID: m.ID, Field: "message", Detail: "was not received from a mailbox"}
	}
	if err := m.mailbox.ready(ctx, op); err != nil {
		return err
	}
	if err := a.check(m.mailbox.Queue()); err != nil {
		return m.located(err)
	}
	if a.kind == OutcomeAck && !a.unanswered && m.phase.Load() == phaseHeld {
		if err := m.checkAnswered(ctx); err != nil {
			return err
		}
	}
	for {
		phase := m.phase.Load()
		switch {
		case phase != phaseHeld:
			return m.settledBefore(op, phase)
		case a.kind == extension, m.phase.CompareAndSwap(phaseHeld, phaseSettling):
			return nil
		}
	}
}

// end records the backend's answer and returns the error for the caller.
func (m *Message[T]) end(ctx context.Context, a action, start time.Time, err error) error {
	expired := err != nil && errors.Is(err, ErrReceiptExpired)
	if a.kind == extension {
		if phase := m.phase.Load(); expired && phase != phaseHeld {
			err = m.settledBefore(extension, phase)
		}
		if err == nil {
			m.granted.Store(int64(a.granted))
		}
		m.tellExtended(ctx, a, start, err)
		return err
	}
	switch {
	case err == nil:
		m.phase.Store(a.phase())
	case expired:
		m.phase.Store(phaseExpired)
	default:
		m.phase.Store(phaseHeld)
	}
	m.tellSettled(ctx, a, start, err)
	return err
}

func (m *Message[T]) tellSettled(ctx context.Context, a action, start time.Time, err error) {
	settled := m.mailbox.hooks.Settled
	if settled == nil {
		return
	}
	now := time.Now()
	settled(ctx, SettledEvent{
		Queue: m.mailbox.name, MessageID: m.ID, Deliveries: m.Deliveries,
		Outcome: a.kind, Delay: a.duration, Reason: a.reason, Cause: a.cause,
		Held: now.Sub(m.receivedAt), Duration: now.Sub(start), Err: err,
	})
}

func (m *Message[T]) tellExtended(ctx context.Context, a action, start time.Time, err error) {
	extended := m.mailbox.hooks.Extended
	if extended == nil {
		return
	}
	extended(ctx, ExtendedEvent{
		Queue: m.mailbox.name, MessageID: m.ID, Visibility: a.duration, Granted: a.granted,
		Duration: time.Since(start), Err: err,
	})
}

func (m *Message[T]) settledBefore(op string, phase uint32) error {
	return &Error{
		Code: ErrSettled, Op: op, Queue: m.mailbox.name, MessageID: m.ID,
		Detail: phaseNames[phase],
	}
}

// located adds queue and id to an error that a check just made.
func (m *Message[T]) located(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.MessageID = m.ID
	}
	return m.mailbox.located(err)
}
