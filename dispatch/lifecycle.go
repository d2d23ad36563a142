package dispatch

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// Sent is an attempt to send a message.
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

// Settled is an attempt to ack, nack, release or dead-letter a message.
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

// DeadLettered is a message that this program dead-lettered: in a worker, or
// because its body could not be decoded. It follows the Settled of the same
// message. Messages that a backend dead-letters because they were delivered too
// often or grew too old cause no event.
type DeadLettered struct {
	Queue      string
	MessageID  string
	Deliveries int
	Reason     mailbox.Reason
	Cause      error
}

// Replied is an attempt to reply to a message. If ReplyTo names a reply slot and
// Err is nil, the slot is resolved.
type Replied struct {
	Queue     string
	MessageID string
	ReplyTo   string
	// Failure is set if the reply was an error.
	Failure  *mailbox.Failure
	Duration time.Duration
	Err      error
}

// Hooks returns hooks for mailbox.Options.Hooks that publish on d what mailboxes
// do. They may serve any number of mailboxes. An event without subscribers costs
// next to nothing.
func Hooks(d *Dispatcher) mailbox.Hooks {
	return mailbox.Hooks{
		Sent:     d.sent,
		Received: d.received,
		Settled:  d.settled,
		Poisoned: d.poisoned,
		Replied:  d.replied,
	}
}

// publish publishes an event. Errors of subscribers go to Options.Failed: hooks
// have no caller that waits for them.
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

// outcomes maps what was done with an undecodable message to an outcome.
var outcomes = map[mailbox.PoisonAction]mailbox.Outcome{
	mailbox.PoisonDeadLetter: mailbox.OutcomeDeadLetter,
	mailbox.PoisonNack:       mailbox.OutcomeNack,
	mailbox.PoisonPutBack:    mailbox.OutcomePutBack,
	mailbox.PoisonAck:        mailbox.OutcomeAck,
}

func (d *Dispatcher) poisoned(ctx context.Context, event mailbox.PoisonedEvent) {
	action, delivery := event.Disposition.Action, event.Delivery
	publish(ctx, d, Settled{
		Queue: event.Queue, MessageID: delivery.ID, Deliveries: delivery.Deliveries,
		Outcome: outcomes[action], Err: event.Err,
	})
	if action == mailbox.PoisonDeadLetter && event.Err == nil {
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
