package mailbox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Hooks are called for what a mailbox does, for metrics, logs and spans; this package
// depends on none of those. Any of them may be nil and then costs nothing. They are
// called synchronously, from many goroutines at once, and must not keep the slices and
// pointers they are given. Calls that are refused before they reach the backend cause no
// hook: the caller has the error.
type Hooks struct {
	// Sending is called before messages are handed to the backend, once for
	// each send or batch. It may add to the messages' Attributes, which are
	// never nil here, so this is the place to carry a trace context along. The
	// context it returns is used for the rest of the call. Where a message has
	// no room for what it adds, and for a reply slot, the message goes without.
	Sending func(ctx context.Context, queue string, messages []driver.Outgoing) context.Context
	// Sent is called when that send has ended, well or not, with the context
	// that Sending returned.
	Sent func(ctx context.Context, event SentEvent)
	// Polled is called when the backend has answered a receive, with messages
	// or without.
	Polled func(ctx context.Context, event PolledEvent)
	// Received is called for each delivery, before its body is decoded.
	Received func(ctx context.Context, queue string, delivery *driver.Delivery)
	// Poisoned is called for each delivery whose body could not be decoded,
	// when it has been disposed of.
	Poisoned func(ctx context.Context, event PoisonedEvent)
	// Settled is called for each message that was acked, nacked, released or
	// dead-lettered, and for each attempt at it that failed.
	Settled func(ctx context.Context, event SettledEvent)
	// Extended is called for each message whose visibility was extended, and
	// for each attempt at it that failed.
	Extended func(ctx context.Context, event ExtendedEvent)
	// Replied is called for each reply that was sent to where a message asked
	// for it, and for each attempt at it that failed.
	Replied func(ctx context.Context, event RepliedEvent)
}

// SentEvent is a send that has ended.
type SentEvent struct {
	Queue string
	// Messages are those that Sending saw, and Results[i] is the result for
	// Messages[i]: empty if that one failed.
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
	// Deliveries is how many messages came, undecodable ones included.
	Deliveries int
	// Duration includes the time spent waiting.
	Duration time.Duration
	Err      error
}

// PoisonedEvent is a delivery whose body could not be decoded.
type PoisonedEvent struct {
	Queue    string
	Delivery *driver.Delivery
	// Cause is why it could not be decoded.
	Cause error
	// Disposition is what became of it.
	Disposition Disposition
	// Err is set if it could not be disposed of; the message then comes back
	// when its visibility ends.
	Err error
}

// SettledEvent is an attempt to settle a message.
type SettledEvent struct {
	Queue      string
	MessageID  string
	Deliveries int
	Outcome    Outcome
	// Delay is that of a nack, and Reason that of a dead letter.
	Delay  time.Duration
	Reason Reason
	// Cause is that of a nack or dead letter; it may be nil.
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
	// Granted is how long the message is leased from now on, if Err is nil; see
	// Message.Granted.
	Granted  time.Duration
	Duration time.Duration
	Err      error
}

// RepliedEvent is an attempt to reply to a message.
type RepliedEvent struct {
	Queue     string
	MessageID string
	// ReplyTo is the address: of a slot, which is then resolved, or of a
	// mailbox.
	ReplyTo string
	// Failure is set if the reply was an error.
	Failure *Failure
	// Duration is how long the backend or the reply store took.
	Duration time.Duration
	Err      error
}

// startIf returns the time if a hook needs it, because reading the clock costs more
// than everything else a mailbox adds to a call.
func startIf(wanted bool) time.Time {
	if !wanted {
		return time.Time{}
	}
	return time.Now()
}

// sending calls the hook of that name with attributes it may write to. A message
// that had no room for what it wrote, and would be refused for that, goes without.
func (m *Mailbox[T]) sending(ctx context.Context, messages []driver.Outgoing) context.Context {
	if m.hooks.Sending == nil {
		return ctx
	}
	own := make([]map[string]string, len(messages))
	for i := range messages {
		// The map may be the caller's, or shared by the whole batch.
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
