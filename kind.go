package mailbox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// AttributeKind is the attribute with the kind of a message, in queues that have
// messages of several kinds. Senders in other languages, and the command line, set it as
// any other attribute. A mailbox does nothing with it; worker.Mux selects the codec and
// the handler by it.
const AttributeKind = "kind"

// Kind returns the kind of the message, and "" if it has none.
func (m *Message[T]) Kind() string { return m.Attributes[AttributeKind] }

// MessageWithBody returns a message that is the same delivery with another body: settling,
// extending or replying to one does the same to the other. Its other fields are those of
// message, whose Attributes it shares.
func MessageWithBody[U, T any](message *Message[T], body U) *Message[U] {
	return &Message[U]{
		ID: message.ID, Body: body, Receipt: message.Receipt, Deliveries: message.Deliveries,
		EnqueuedAt: message.EnqueuedAt, FirstReceivedAt: message.FirstReceivedAt,
		Attributes: message.Attributes, Group: message.Group, ReplyTo: message.ReplyTo,
		CorrelationID: message.CorrelationID, Priority: message.Priority, LastError: message.LastError, origin: message,
	}
}

// delivered is a Message without its type parameter, for messages that share the state
// of another one.
type delivered interface {
	request
	SetProgress(fraction float64, text string)
	Granted() time.Duration
	Settled() bool
	OnCancel(ctx context.Context, cancelled func(error)) (stop func())
	perform(ctx context.Context, a action) error
	respond(ctx context.Context, reply *driver.Outgoing) error
	replyQueue(ctx context.Context) (queue driver.Queue, isSlot bool, err error)
}
