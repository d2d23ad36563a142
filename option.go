package mailbox

import (
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A SendOption changes one send. Options are small values that print
// themselves; where two set the same thing the later one wins, except that
// attributes add up.
type SendOption interface {
	fmt.Stringer
	sendOption()
}

// A ReceiveOption changes one receive. Options are small values that print
// themselves; where two set the same thing the later one wins.
type ReceiveOption interface {
	fmt.Stringer
	receiveOption()
}

type (
	delayOption         time.Duration
	replyToOption       string
	dedupKeyOption      string
	groupOption         string
	correlationIDOption string
	attributesOption    struct {
		one        bool // just key and value, not many
		key, value string
		many       map[string]string
	}

	maxOption        int
	maxBytesOption   int
	visibilityOption time.Duration
	waitOption       time.Duration
)

// WithDelay keeps the message from being delivered before d has passed, at
// most Traits.MaxDelay. It does not cost the message its place in the order.
func WithDelay(d time.Duration) SendOption { return delayOption(d) }

// WithReplyTo says where an answer is expected: the name of a mailbox or a
// reply slot.
func WithReplyTo(id string) SendOption { return replyToOption(id) }

// WithDedupKey makes it safe to repeat the send: within the queue's dedup
// window the same key with the same body is the same message, and Sent says
// Duplicate. The same key with another body is ErrConflict. Empty means none.
func WithDedupKey(key string) SendOption { return dedupKeyOption(key) }

// WithGroup pins the message to a shard of the queue and, in a queue with
// strict groups, puts it in order with the others of its group.
func WithGroup(key string) SendOption { return groupOption(key) }

// WithCorrelationID carries an id that ties messages together.
func WithCorrelationID(id string) SendOption { return correlationIDOption(id) }

// WithAttributes adds attributes. The map is read during the call only.
func WithAttributes(attributes map[string]string) SendOption {
	return attributesOption{many: attributes}
}

// WithAttribute adds one attribute.
func WithAttribute(key, value string) SendOption {
	return attributesOption{one: true, key: key, value: value}
}

// WithMax asks for up to n messages; more than Traits.MaxBatch are never
// returned at once. Without it, Receive asks for one.
func WithMax(n int) ReceiveOption { return maxOption(n) }

// WithMaxBytes bounds the sum of the encoded bodies, except that one message
// is always allowed. 0 means no bound.
func WithMaxBytes(n int) ReceiveOption { return maxBytesOption(n) }

// WithVisibility sets how long other receivers do not get the messages, at most
// Traits.MaxVisibility. With 0 they are ready again at once. Without it, it is
// DefaultVisibility.
func WithVisibility(d time.Duration) ReceiveOption { return visibilityOption(d) }

// WithWait sets how long to block while nothing is ready; there is no limit.
// Without it, Receive does not block.
func WithWait(d time.Duration) ReceiveOption { return waitOption(d) }

func (delayOption) sendOption()         {}
func (replyToOption) sendOption()       {}
func (dedupKeyOption) sendOption()      {}
func (groupOption) sendOption()         {}
func (correlationIDOption) sendOption() {}
func (attributesOption) sendOption()    {}

func (maxOption) receiveOption()        {}
func (maxBytesOption) receiveOption()   {}
func (visibilityOption) receiveOption() {}
func (waitOption) receiveOption()       {}

func (o delayOption) String() string         { return fmt.Sprintf("WithDelay(%v)", time.Duration(o)) }
func (o replyToOption) String() string       { return fmt.Sprintf("WithReplyTo(%q)", string(o)) }
func (o dedupKeyOption) String() string      { return fmt.Sprintf("WithDedupKey(%q)", string(o)) }
func (o groupOption) String() string         { return fmt.Sprintf("WithGroup(%q)", string(o)) }
func (o correlationIDOption) String() string { return fmt.Sprintf("WithCorrelationID(%q)", string(o)) }

func (o attributesOption) String() string {
	if o.one {
		return fmt.Sprintf("WithAttribute(%q, %q)", o.key, o.value)
	}
	return fmt.Sprintf("WithAttributes(%q)", o.many)
}

func (o maxOption) String() string      { return fmt.Sprintf("WithMax(%d)", int(o)) }
func (o maxBytesOption) String() string { return fmt.Sprintf("WithMaxBytes(%d)", int(o)) }
func (o visibilityOption) String() string {
	return fmt.Sprintf("WithVisibility(%v)", time.Duration(o))
}
func (o waitOption) String() string { return fmt.Sprintf("WithWait(%v)", time.Duration(o)) }

// applySend is a type switch, not a method of the options, because a call
// through the interface would make every option that is not constant escape to
// the heap. A nil option is passed over.
func applySend(msg *driver.Outgoing, options []SendOption) {
	shared := false // whether msg.Attributes is a map of the caller's
	for _, option := range options {
		switch o := option.(type) {
		case delayOption:
			msg.Delay = time.Duration(o)
		case replyToOption:
			msg.ReplyTo = string(o)
		case dedupKeyOption:
			msg.DedupKey = string(o)
		case groupOption:
			msg.Group = string(o)
		case correlationIDOption:
			msg.CorrelationID = string(o)
		case attributesOption:
			if !o.one && len(msg.Attributes) == 0 {
				msg.Attributes, shared = o.many, true
				continue
			}
			msg.Attributes, shared = writable(msg.Attributes, shared), false
			if o.one {
				msg.Attributes[o.key] = o.value
			} else {
				maps.Copy(msg.Attributes, o.many)
			}
		}
	}
}

// writable returns attributes in a map that is not the caller's.
func writable(attributes map[string]string, shared bool) map[string]string {
	switch {
	case attributes == nil:
		return make(map[string]string)
	case shared:
		return maps.Clone(attributes)
	}
	return attributes
}

// applyReceive is a type switch for the same reason as applySend.
func applyReceive(request driver.ReceiveRequest, options []ReceiveOption) driver.ReceiveRequest {
	for _, option := range options {
		switch o := option.(type) {
		case maxOption:
			request.Max = int(o)
		case maxBytesOption:
			request.MaxBytes = int(o)
		case visibilityOption:
			request.Visibility = time.Duration(o)
		case waitOption:
			request.Wait = time.Duration(o)
		}
	}
	return request
}
