package dispatch

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// Sent is a message that was sent, or could not be.
type Sent struct {
	Queue string
	// MessageID is empty if Err is set.
	MessageID     string
	Duplicate     bool
	ReplyTo       string
	CorrelationID string
	// Duration is how long the backend took. Messages of one batch share it.
	Duration time.Duration
	Err      error
}

// Received is a message that was delivered.
type Received struct {
	Queue         string
	MessageID     string
	Deliveries    int
	ReplyTo       string
	CorrelationID string
	// Waited is how long ago it was sent, by wall clocks.
	Waited time.Duration
}

// Settled is a message that was acked, nacked, released or dead-lettered, or an
// attempt at it that failed.
type Settled struct {
	Queue      string
	MessageID  string
	Deliveries int
	Outcome    mailbox.Outcome
	// Held is the time since it was received. It is 0 for one that could not be
	// decoded.
	Held time.Duration
	Err  error
}

// DeadLettered is a message that was dead-lettered by a program: by a worker,
// or because its body could not be decoded. It follows the Settled of the same
// message. What a backend buries by itself, because it was delivered too often
// or grew too old, no program sees.
type DeadLettered struct {
	Queue      string
	MessageID  string
	Deliveries int
	Reason     mailbox.Reason
	Cause      error
}

// Replied is a reply to a message, or an attempt at it that failed. If ReplyTo
// names a reply slot and Err is nil, the slot is resolved.
type Replied struct {
	Queue     string
	MessageID string
	ReplyTo   string
	// Failure is set if the reply was an error.
	Failure  *mailbox.Failure
	Duration time.Duration
	Err      error
}

// Trace returns hooks for mailbox.Options.Trace that publish what mailboxes do
// on d. One may serve any number of mailboxes. Events that nobody has
// subscribed to are not made.
func Trace(d *Dispatcher) *mailbox.Trace {
	return &mailbox.Trace{
		Sent:     d.sent,
		Received: d.received,
		Settled:  d.settled,
		Poisoned: d.poisoned,
		Replied:  d.replied,
	}
}

// publish tells an event to who wants it. What subscribers say about it is told
// to Options.Failed: nobody is waiting for it here.
func publish[E any](ctx context.Context, d *Dispatcher, event E) { _ = Publish(ctx, d, event) }

func (d *Dispatcher) sent(ctx context.Context, event mailbox.SentEvent) {
	for i := range event.Messages {
		message := &event.Messages[i]
		sent := Sent{
			Queue: event.Queue, ReplyTo: message.ReplyTo, CorrelationID: message.CorrelationID,
			Duration: event.Duration, Err: mailbox.ErrorAt(event.Err, i),
		}
		if sent.Err == nil && i < len(event.Results) {
			sent.MessageID, sent.Duplicate = event.Results[i].ID, event.Results[i].Duplicate
		}
		publish(ctx, d, sent)
	}
}

func (d *Dispatcher) received(ctx context.Context, queue string, delivery *driver.Delivery) {
	publish(ctx, d, Received{
		Queue: queue, MessageID: delivery.ID, Deliveries: delivery.Deliveries,
		ReplyTo: delivery.ReplyTo, CorrelationID: delivery.CorrelationID,
		Waited: time.Since(delivery.EnqueuedAt),
	})
}

func (d *Dispatcher) settled(ctx context.Context, event mailbox.SettledEvent) {
	publish(ctx, d, Settled{
		Queue: event.Queue, MessageID: event.MessageID, Deliveries: event.Deliveries,
		Outcome: event.Outcome, Held: event.Held, Err: event.Err,
	})
	if event.Outcome == mailbox.OutcomeDeadLetter && event.Err == nil {
		publish(ctx, d, DeadLettered{
			Queue: event.Queue, MessageID: event.MessageID, Deliveries: event.Deliveries,
			Reason: event.Reason, Cause: event.Cause,
		})
	}
}

// outcomes are what becomes of messages that cannot be decoded.
var outcomes = map[mailbox.PoisonAction]mailbox.Outcome{
	mailbox.PoisonBury: mailbox.OutcomeDeadLetter,
	mailbox.PoisonNack: mailbox.OutcomeNack,
	mailbox.PoisonAck:  mailbox.OutcomeAck,
}

func (d *Dispatcher) poisoned(ctx context.Context, event mailbox.PoisonedEvent) {
	action, delivery := event.Disposition.Action, event.Delivery
	publish(ctx, d, Settled{
		Queue: event.Queue, MessageID: delivery.ID, Deliveries: delivery.Deliveries,
		Outcome: outcomes[action], Err: event.Err,
	})
	if action == mailbox.PoisonBury && event.Err == nil {
		publish(ctx, d, DeadLettered{
			Queue: event.Queue, MessageID: delivery.ID, Deliveries: delivery.Deliveries,
			Reason: mailbox.ReasonParse, Cause: event.Cause,
		})
	}
}

func (d *Dispatcher) replied(ctx context.Context, event mailbox.RepliedEvent) {
	publish(ctx, d, Replied{
		Queue: event.Queue, MessageID: event.MessageID, ReplyTo: event.ReplyTo,
		Failure: event.Failure, Duration: event.Duration, Err: event.Err,
	})
}
