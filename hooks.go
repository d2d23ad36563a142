package mailbox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Hooks are functions that a mailbox calls, for metrics, logs and spans. A nil hook costs
// nothing. Hooks are called synchronously, from many goroutines at once, and must not
// keep the slices and pointers that they are given. They are not called for operations
// that are refused before they reach the backend.
type Hooks struct {
	// Sending is called before messages are passed to the backend, once for each send
	// or batch. It may add to the Attributes of the messages, which are never nil here,
	// such as a trace context. The context it returns is used for the rest of the call.
	// Added attributes that would exceed the limits of a message, and those of a
	// message for a reply slot, are left out.
	Sending func(ctx context.Context, queue string, messages []driver.Outgoing) context.Context
	// Sent is called after the send, successful or not, with the context that Sending
	// returned.
	Sent func(ctx context.Context, event SentEvent)
	// Polled is called when the backend has answered a receive, with or without
	// messages.
	Polled func(ctx context.Context, event PolledEvent)
	// Received is called for each delivery, before its body is decoded.
	Received func(ctx context.Context, queue string, delivery *driver.Delivery)
	// Poisoned is called for each delivery whose body could not be decoded, after its
	// disposition was carried out.
	Poisoned func(ctx context.Context, event PoisonedEvent)
	// Settled is called for each attempt to ack, nack, release or dead-letter a message,
	// successful or not.
	Settled func(ctx context.Context, event SettledEvent)
	// Extended is called for each attempt to extend a lease, successful or not.
	Extended func(ctx context.Context, event ExtendedEvent)
	// Replied is called for each attempt to reply to a message, successful or not.
	Replied func(ctx context.Context, event RepliedEvent)
}

// SentEvent is one send or batch.
type SentEvent struct {
	Queue string
	// Messages are those that were passed to the backend, and Results[i] is the result
	// for Messages[i]: empty if that one failed.
	Messages []driver.Outgoing
	Results  []Sent
	// Duration is how long the backend took.
	Duration time.Duration
	// Err has the positions of Messages; see ErrorAt.
	Err error
}

// PolledEvent is one answer of the backend to a receive.
type PolledEvent struct {
	Queue   string
	Request driver.ReceiveRequest
	// Deliveries is the number of messages, including undecodable ones.
	Deliveries int
	// Duration includes the time spent waiting.
	Duration time.Duration
	Err      error
}

// PoisonedEvent is a delivery whose body could not be decoded.
type PoisonedEvent struct {
	Queue    string
	Delivery *driver.Delivery
	// Cause is the error of the codec.
	Cause error
	// Disposition is what was done with it.
	Disposition Disposition
	// Err is set if that failed; the message is then delivered again when its
	// visibility ends.
	Err error
}

// SettledEvent is an attempt to settle a message.
type SettledEvent struct {
	Queue      string
	MessageID  string
	Deliveries int
	Outcome    Outcome
	// Delay is set for a nack, and Reason for a dead letter.
	Delay  time.Duration
	Reason Reason
	// Cause may be set for a nack or a dead letter.
	Cause error
	// Held is the time since the message was received.
	Held time.Duration
	// Duration is how long the backend took. Messages settled in one batch
	// share it.
	Duration time.Duration
	// Err is nil if the message is settled as Outcome says.
	Err error
}

// ExtendedEvent is an attempt to extend the visibility of a message.
type ExtendedEvent struct {
	Queue      string
	MessageID  string
	Visibility time.Duration
	// Granted is how long the message is leased now, if Err is nil; see
	// Message.Granted.
	Granted  time.Duration
	Duration time.Duration
	Err      error
}

// RepliedEvent is an attempt to reply to a message.
type RepliedEvent struct {
	Queue     string
	MessageID string
	// ReplyTo is the address: a reply slot or a mailbox.
	ReplyTo string
	// Failure is set if the reply was an error.
	Failure *Failure
	// Duration is how long the backend or the reply store took.
	Duration time.Duration
	Err      error
}

// startIf returns the time if a hook needs it. Reading the clock costs more than all
// else that a mailbox adds to a call.
func startIf(wanted bool) time.Time {
	if !wanted {
		return time.Time{}
	}
	return time.Now()
}

// sending calls Hooks.Sending with attributes that it may write to. It undoes additions
// with which a message would be refused.
func (m *Mailbox[T]) sending(ctx context.Context, messages []driver.Outgoing) context.Context {
	if m.hooks.Sending == nil {
		return ctx
	}
	own := make([]map[string]string, len(messages))
	for i := range messages {
		// The caller may own the map, or the messages of a batch share it.
		own[i] = messages[i].Attributes
		messages[i].Attributes = writable(own[i], true)
	}
	derived := m.hooks.Sending(ctx, m.name, messages)
	traits := m.Queue().Traits()
	for i := range messages {
		if messages[i].Check(&traits) != nil {
			messages[i].Attributes = own[i]
		}
	}
	if derived != nil {
		return derived
	}
	return ctx
}
