package mailbox

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Receipt identifies one delivery of a message.
type Receipt = driver.Receipt

// A Message is a received message, leased until it is settled or its visibility ends.
// The receiver owns its fields: changing them has no effect elsewhere.
//
// A message is settled once, by the first of Ack, Nack, Release, PutBack and DeadLetter that
// succeeds or finds that the lease is over (ErrReceiptExpired). After that, and while
// another call is settling it, settling and extending return ErrSettled without a call
// of the backend. Any other error, such as ErrUnavailable or an error of the context,
// leaves the message unsettled, and the call can be repeated. If the repeated call
// returns ErrReceiptExpired, the first one may have succeeded.
//
// The methods are safe for concurrent use.
type Message[T any] struct {
	ID   string
	Body T
	// Receipt identifies this delivery.
	Receipt Receipt
	// Deliveries counts the deliveries of the message, including this one: it is 1 on
	// the first delivery. Those that were released or put back do not count.
	Deliveries int
	// EnqueuedAt is when the message was sent, and FirstReceivedAt when it was
	// delivered for the first time without being given back; both in UTC.
	EnqueuedAt      time.Time
	FirstReceivedAt time.Time
	Attributes      map[string]string
	Group           string
	ReplyTo         string
	CorrelationID   string
	Priority        int
	// LastError is the cause of the latest nack with a cause; empty if there was none.
	LastError string

	mailbox *Mailbox[T]
	// origin is the received message that this one was made of by MessageWithBody, and
	// has its state; nil for a message that was received.
	origin     delivered
	receivedAt time.Time // zero unless Hooks.Settled or slotSeen is set
	granted    atomic.Int64
	progress   atomic.Pointer[driver.Progress]
	phase      atomic.Uint32
	slot       atomic.Uint32 // the known state of its reply slot, if it has one
	slotSeen   bool          // its slot was pending at receivedAt
}

// The phases of a message. A settling call that fails returns it to held. The phases
// from acked on are final.
const (
	phaseHeld uint32 = iota
	phaseSettling
	phaseAcked
	phaseNacked
	phaseReleased
	phasePutBack
	phaseDead
	phaseExpired
)

// phaseNames are the details of ErrSettled.
var phaseNames = [...]string{
	phaseHeld:     "held",
	phaseSettling: "another call is settling it",
	phaseAcked:    "acked",
	phaseNacked:   "nacked",
	phaseReleased: "released",
	phasePutBack:  "put back",
	phaseDead:     "dead-lettered",
	phaseExpired:  "its receipt had expired",
}

// load fills m from a delivery and its decoded body.
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
	m.Priority = delivery.Priority
	m.LastError = delivery.LastError
	m.mailbox = mailbox
	m.receivedAt = receivedAt
	if delivery.SlotPending && mailbox.sharesSlots() {
		m.slotSeen = true
		if receivedAt.IsZero() {
			m.receivedAt = time.Now()
		}
	}
}

// ownAttributes copies attributes, because those of a backend are shared.
func ownAttributes(shared map[string]string) map[string]string {
	if len(shared) == 0 {
		return nil
	}
	return maps.Clone(shared)
}

// Ack removes the message permanently, as durably as Traits says. A request that names
// a reply slot must be answered first: see Reply. Codes: ErrReplyExpected, ErrSettled,
// ErrReceiptExpired.
func (m *Message[T]) Ack(ctx context.Context) error {
	return m.perform(ctx, action{kind: OutcomeAck})
}

// Nack returns the message to the tail of the queue, or in a strict group to its place.
// It is ready again after delay. The text of cause, which may be nil, is stored as the
// message's last error. A message that has been delivered as often as the queue allows
// is dead-lettered instead. Codes: ErrInvalid (the delay), ErrSettled,
// ErrReceiptExpired.
func (m *Message[T]) Nack(ctx context.Context, delay time.Duration, cause error) error {
	return m.perform(ctx, action{kind: OutcomeNack, duration: delay, cause: cause})
}

// Release gives the message back as if it had not been delivered: it is ready at its
// place, at once or after WithDelay. Use it for messages that were not processed. The
// delivery does not count, except after driver.MaxReleases times in a row, and on a backend
// without Traits.Release. Codes: ErrInvalid (the delay), ErrSettled, ErrReceiptExpired.
func (m *Message[T]) Release(ctx context.Context, options ...ReleaseOption) error {
	return m.perform(ctx, action{kind: OutcomeRelease, duration: releaseDelay(options)})
}

// PutBack is Nack for a message that another receiver should have, or that cannot be
// processed now for a reason outside of it. As with Release, the delivery does not count.
// Codes: ErrInvalid (the delay), ErrSettled, ErrReceiptExpired.
func (m *Message[T]) PutBack(ctx context.Context, delay time.Duration, cause error) error {
	return m.perform(ctx, action{kind: OutcomePutBack, duration: delay, cause: cause})
}

// DeadLetter dead-letters the message, with the reason and the text and type of cause,
// which may be nil. A waiting client can be answered afterwards, with ReplyError. Codes:
// ErrUnsupported if the backend keeps no dead letters, ErrInvalid (the reason), ErrFull
// if there are too many dead letters (nack the message then), ErrSettled,
// ErrReceiptExpired.
func (m *Message[T]) DeadLetter(ctx context.Context, reason Reason, cause error) error {
	return m.perform(ctx, action{kind: OutcomeDeadLetter, reason: reason, cause: cause})
}

// Extend moves the end of the lease to visibility from now, which may be earlier than
// before. It may be called any number of times before the message is settled, also from
// another goroutine: if a settling call is first, Extend returns ErrSettled, so
// ErrReceiptExpired always means that the lease was lost. A queue that limits how long a
// message can be leased may cut the extension: see Granted. Codes: ErrInvalid (the
// visibility), ErrSettled, ErrReceiptExpired.
func (m *Message[T]) Extend(ctx context.Context, visibility time.Duration) error {
	return m.perform(ctx, action{kind: extension, duration: visibility})
}

// SetProgress sets what the extensions from now on report about the work on the message:
// how much of it is done, from 0 to 1, negative if that is unknown, and what is being
// done. It makes no call: mailboxd shows the report once the message is extended, in the
// message's trace and among its workers; other backends show it nowhere. Text that cannot
// be printed becomes spaces, and what is longer than 200 bytes is cut.
func (m *Message[T]) SetProgress(fraction float64, text string) {
	if m.origin != nil {
		m.origin.SetProgress(fraction, text)
		return
	}
	m.progress.Store(driver.NewProgress(fraction, text))
}

// Granted returns how long the latest successful extension leased the message, counted
// from that extension. It is less than requested if the queue limits how long a message
// can be leased, and 0 before the first extension.
func (m *Message[T]) Granted() time.Duration {
	if m.origin != nil {
		return m.origin.Granted()
	}
	return time.Duration(m.granted.Load())
}

// Settled reports whether the message was settled, or a call has returned
// ErrReceiptExpired.
func (m *Message[T]) Settled() bool {
	if m.origin != nil {
		return m.origin.Settled()
	}
	return m.phase.Load() > phaseSettling
}

// perform performs an action on this message alone.
func (m *Message[T]) perform(ctx context.Context, a action) error {
	if m != nil && m.origin != nil {
		return m.origin.perform(ctx, a)
	}
	if err := m.begin(ctx, a); err != nil {
		return err
	}
	a = a.on(m.mailbox.Queue())
	batch := actionBatches.get()
	defer batch.free()
	batch.add(m.Receipt, a, m.progress.Load())
	start := startIf(m.mailbox.observes(a))
	granted, err := batch.send(ctx, m.mailbox.Queue(), a)
	if err != nil {
		err = driver.At(err, 0)
	}
	return m.end(ctx, a.with(granted, 0), start, err)
}

// begin returns an error if the action is not possible. If it returns nil, the caller
// must call end; until then no other call can settle the message. An extension does not
// block other calls.
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

// end records the result of the backend and returns the error for the caller.
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

// located adds the queue and the id to an error of a check.
func (m *Message[T]) located(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.MessageID = m.ID
	}
	return m.mailbox.located(err)
}
