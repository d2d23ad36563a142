package mailbox

import (
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A SendOption changes one send. If two options set the same field, the later one wins;
// attributes add up. Options print as the call that made them.
type SendOption interface {
	fmt.Stringer
	sendOption()
}

// A ReceiveOption changes one receive. If two options set the same field, the later one
// wins. Options print as the call that made them.
type ReceiveOption interface {
	fmt.Stringer
	receiveOption()
}

// A ReleaseOption changes one release. Options print as the call that made them.
type ReleaseOption interface {
	fmt.Stringer
	releaseOption()
}

type (
	delayOption         time.Duration
	deliverAtOption     time.Time
	ttlOption           time.Duration
	priorityOption      int
	replyToOption       string
	dedupKeyOption      string
	uniqueKeyOption     string
	replaceOption       struct{}
	groupOption         string
	correlationIDOption string
	attributesOption    struct {
		one        bool // key and value, not many
		key, value string
		many       map[string]string
	}

	maxOption        int
	maxBytesOption   int
	visibilityOption time.Duration
	waitOption       time.Duration
)

// WithDelay delays delivery of the message by d: of one that is sent by at most
// Traits.MaxDelay, of one that is released by at most Traits.MaxVisibility. The message
// keeps its place in the order.
func WithDelay(d time.Duration) interface {
	SendOption
	ReleaseOption
} {
	return delayOption(d)
}

// WithDeliverAt delays delivery of the message until a time, at most Traits.MaxDelay from
// now, instead of WithDelay. A time that is past does not delay it. It follows the wall
// clock of the backend, also across restarts and when that clock is set; a delay is
// elapsed time. Without Traits.DeliverAt it is refused with ErrUnsupported.
func WithDeliverAt(t time.Time) SendOption { return deliverAtOption(t) }

// WithTTL sets the time to live of the message, at most MaxTTL from when it is due, instead
// of that of the queue. A message that waits at the end of it is not delivered any more: it
// becomes a dead letter with reason expired, or is removed if the queue drops such messages.
// It follows the wall clock of the backend. Without Traits.TTL it is refused with
// ErrUnsupported.
func WithTTL(d time.Duration) SendOption { return ttlOption(d) }

// WithPriority sets the priority of the message, 0…MaxPriority: messages with a higher one are
// delivered first. While a message is ready its level rises, so that one of a low priority
// is delivered under a steady load of high ones. Without Traits.Priorities it is refused with
// ErrUnsupported.
func WithPriority(priority int) SendOption { return priorityOption(priority) }

// WithReplyTo sets the address for the answer: the name of a mailbox, or a reply slot.
func WithReplyTo(id string) SendOption { return replyToOption(id) }

// WithDedupKey makes it safe to repeat the send: within the queue's dedup
// window the same key with the same body is the same message, and Sent says
// Duplicate. The same key with another body is ErrConflict. Empty means none.
func WithDedupKey(key string) SendOption { return dedupKeyOption(key) }

// WithUniqueKey gives the message a unique key, which it holds until it is acked, dead or removed. A send
// with the same key meanwhile adds no message, whatever its body: Sent says Duplicate, and has
// the id of the message that holds the key. Without Traits.UniqueKeys it is refused with
// ErrUnsupported. Empty means none.
func WithUniqueKey(key string) SendOption { return uniqueKeyOption(key) }

// WithReplace replaces the message that holds the unique key of this one, if it is ready or
// delayed: it gets the body, attributes, reply address, correlation id, due time and time to live of
// this one, and keeps its id and its place. So of many sends with a delay only the last is
// delivered. Sent says Replaced.
func WithReplace() SendOption { return replaceOption{} }

// WithGroup sets the group of the message. Messages of a group share a shard of the
// queue and, in a queue with strict groups, are delivered in order.
func WithGroup(key string) SendOption { return groupOption(key) }

// WithCorrelationID sets an id that relates messages to each other.
func WithCorrelationID(id string) SendOption { return correlationIDOption(id) }

// WithAttributes adds attributes. The map is read during the call only.
func WithAttributes(attributes map[string]string) SendOption {
	return attributesOption{many: attributes}
}

// WithAttribute adds one attribute.
func WithAttribute(key, value string) SendOption {
	return attributesOption{one: true, key: key, value: value}
}

// WithKind sets the kind of the message, which tells a receiver of several kinds how to
// decode and handle it; see AttributeKind.
func WithKind(kind string) SendOption { return WithAttribute(AttributeKind, kind) }

// WithMax sets how many messages to receive at most. More than Traits.MaxBatch are never
// returned at once. The default is 1.
func WithMax(n int) ReceiveOption { return maxOption(n) }

// WithMaxBytes limits the total size of the encoded bodies; a single message is always
// allowed. 0 means no limit.
func WithMaxBytes(n int) ReceiveOption { return maxBytesOption(n) }

// WithVisibility sets how long the messages are leased, at most Traits.MaxVisibility.
// With 0 they are ready again at once. The default is DefaultVisibility.
func WithVisibility(d time.Duration) ReceiveOption { return visibilityOption(d) }

// WithWait sets how long to block while no message is ready, without a limit. The
// default is not to block.
func WithWait(d time.Duration) ReceiveOption { return waitOption(d) }

func (delayOption) sendOption()         {}
func (deliverAtOption) sendOption()     {}
func (ttlOption) sendOption()           {}
func (priorityOption) sendOption()      {}
func (replyToOption) sendOption()       {}
func (dedupKeyOption) sendOption()      {}
func (uniqueKeyOption) sendOption()     {}
func (replaceOption) sendOption()       {}
func (groupOption) sendOption()         {}
func (correlationIDOption) sendOption() {}
func (attributesOption) sendOption()    {}

func (delayOption) releaseOption() {}

func (maxOption) receiveOption()        {}
func (maxBytesOption) receiveOption()   {}
func (visibilityOption) receiveOption() {}
func (waitOption) receiveOption()       {}

func (o delayOption) String() string { return fmt.Sprintf("WithDelay(%v)", time.Duration(o)) }
func (o deliverAtOption) String() string {
	return fmt.Sprintf("WithDeliverAt(%s)", time.Time(o).Format(time.RFC3339))
}
func (o ttlOption) String() string           { return fmt.Sprintf("WithTTL(%v)", time.Duration(o)) }
func (o priorityOption) String() string      { return fmt.Sprintf("WithPriority(%d)", int(o)) }
func (o replyToOption) String() string       { return fmt.Sprintf("WithReplyTo(%q)", string(o)) }
func (o dedupKeyOption) String() string      { return fmt.Sprintf("WithDedupKey(%q)", string(o)) }
func (o uniqueKeyOption) String() string     { return fmt.Sprintf("WithUniqueKey(%q)", string(o)) }
func (replaceOption) String() string         { return "WithReplace()" }
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

// releaseDelay returns the delay of a release. It skips nil options.
func releaseDelay(options []ReleaseOption) (delay time.Duration) {
	for _, option := range options {
		if o, ok := option.(delayOption); ok {
			delay = time.Duration(o)
		}
	}
	return delay
}

// applySend applies options. It is a type switch, because a method call through the
// interface would make every option that is not constant escape to the heap. It skips
// nil options.
func applySend(msg *driver.Outgoing, options []SendOption) {
	shared := false // whether the caller owns msg.Attributes
	for _, option := range options {
		switch o := option.(type) {
		case delayOption:
			msg.Delay = time.Duration(o)
		case deliverAtOption:
			msg.DeliverAt = time.Time(o)
		case ttlOption:
			msg.TTL = time.Duration(o)
		case priorityOption:
			msg.Priority = int(o)
		case replyToOption:
			msg.ReplyTo = string(o)
		case dedupKeyOption:
			msg.DedupKey = string(o)
		case uniqueKeyOption:
			msg.UniqueKey = string(o)
		case replaceOption:
			msg.Replace = true
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

// writable returns attributes in a map that the caller does not own.
func writable(attributes map[string]string, shared bool) map[string]string {
	switch {
	case attributes == nil:
		return make(map[string]string)
	case shared:
		return maps.Clone(attributes)
	}
	return attributes
}

// applyReceive applies options; see applySend.
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
