package broker

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// An Event is one event in the trace of a message.
type Event struct {
	At   time.Time
	Kind EventKind
	// By is the token that caused the event; zero if the broker did.
	By capability.TokenID
	// Attempt is the number of the delivery; 0 if there is none or it is unknown.
	Attempt int
	// Note is the cause of a nack, the reason of a dead letter, the visibility of an
	// extension, and so on.
	Note string
}

// An EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	EventSent EventKind = iota
	EventDelivered
	EventExtended
	EventFailed
	EventDeadLettered
	EventRedriven
	EventDiscarded
	EventAcked
	EventReleased // or put back
	EventEdited
	EventRemoved
	EventReplaced
)

// String returns the kind as surfaces show it.
func (k EventKind) String() string {
	return [...]string{"sent", "delivered", "extended", "failed", "dead-lettered", "redriven", "discarded", "acked", "released", "edited", "removed", "replaced"}[k]
}

// A Trace is the recorded life of one message.
type Trace struct {
	// Message is the message as it is now; nil if it is not in the queue any more.
	Message *Peeked
	// Progress is what the worker that holds the message has reported; nil if it has reported
	// nothing, or not to this broker.
	Progress *Progress
	// Events are the remembered events of this broker, oldest first.
	Events []Event
}

// messageID is a ULID in 16 bytes. Messages of backends with other ids have no
// traces.
type messageID [16]byte

func parseMessageID(text string) (id messageID, ok bool) {
	if len(text) != ulid.EncodedSize {
		return id, false
	}
	parsed, err := ulid.Parse(text)
	return messageID(parsed), err == nil
}

// A tracedEvent is an event as the table keeps it. It has no pointers, so the collector
// does not read the thousands of them.
type tracedEvent struct {
	message messageID
	at      int64 // Unix nanoseconds
	by      holder
	attempt int32
	kind    EventKind
}

const (
	traceShards = 16
	// maxNoteBytes bounds the memory of notes.
	maxNoteBytes = 200
)

// A traceTable remembers the latest events, in rings by message id, so that a lookup
// reads one ring.
type traceTable struct{ rings [traceShards]traceRing }

type traceRing struct {
	mu      sync.Mutex // guards the fields below
	entries []tracedEvent
	queues  []*queueKey    // of entries; nil: the entry is empty
	notes   map[int]string // of the few entries that have one
	next    int
}

func (l *traceTable) init(events int) {
	n := max(0, events) / traceShards
	for i := range l.rings {
		l.rings[i] = traceRing{entries: make([]tracedEvent, n), queues: make([]*queueKey, n), notes: make(map[int]string)}
	}
}

// ring returns the ring of a message, by the last byte of its ULID, which is random or
// counts.
func (l *traceTable) ring(id messageID) *traceRing { return &l.rings[id[15]%traceShards] }

// note records an event.
func (l *traceTable) note(t *queueKey, id string, by holder, kind EventKind, attempt int, note string, at time.Time) {
	message, ok := parseMessageID(id)
	if !ok {
		return
	}
	r := l.ring(message)
	if len(r.entries) == 0 {
		return
	}
	r.mu.Lock()
	r.entries[r.next] = tracedEvent{message, at.UnixNano(), by, int32(attempt), kind}
	r.queues[r.next] = t
	delete(r.notes, r.next)
	if note != "" {
		r.notes[r.next] = shortened(note)
	}
	if r.next++; r.next == len(r.entries) {
		r.next = 0
	}
	r.mu.Unlock()
}

// events returns those of a message in a queue, oldest first.
func (l *traceTable) events(t queueKey, id string) []Event {
	message, ok := parseMessageID(id)
	if !ok {
		return nil
	}
	r := l.ring(message)
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []Event
	for i := range r.entries {
		i = (r.next + i) % len(r.entries)
		e := &r.entries[i]
		if e.message == message && r.queues[i] != nil && *r.queues[i] == t {
			events = append(events, Event{time.Unix(0, e.at).UTC(), e.kind, e.by.token, int(e.attempt), r.notes[i]})
		}
	}
	return events
}

// acked reports whether the table remembers that exactly this token acked a message.
func (l *traceTable) acked(t queueKey, id string, by holder) bool {
	message, ok := parseMessageID(id)
	if !ok {
		return false
	}
	r := l.ring(message)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.entries {
		e := &r.entries[i]
		if e.message == message && e.kind == EventAcked && e.by == by && *r.queues[i] == t {
			return true
		}
	}
	return false
}

// Trace returns the remembered events of a message, and the message itself if it still
// exists. It needs a token for peek, and may block on I/O. Codes: ErrNotFound if
// nothing is known of the message.
func (c Caller) Trace(ctx context.Context, queue, id string) (Trace, error) {
	grant, err := c.authorize(ctx, capability.OpPeek, queue)
	if err != nil {
		return Trace{}, err
	}
	if err := c.broker.admit("look", queue, lastForReads); err != nil {
		return Trace{}, err
	}
	trace := Trace{Events: c.broker.traces.events(queueKey{c.tenant, queue}, id)}
	for peeked, err := range c.look(ctx, queue, driver.Query{ID: id, Limit: 1}) {
		if err != nil {
			if len(trace.Events) > 0 {
				break
			}
			return Trace{}, err
		}
		c.charge(grant, &peeked.Message)
		trace.Message = &peeked
	}
	if trace.Message != nil && trace.Message.State == driver.StateInFlight {
		trace.Progress = c.progressOf(queueKey{c.tenant, queue}, id)
	}
	if trace.Message == nil && len(trace.Events) == 0 {
		return Trace{}, &driver.Error{Code: driver.ErrNotFound, Op: "look", Queue: queue, MessageID: id, Detail: "no trace of the message, and it is not in the queue"}
	}
	return trace, nil
}

// progressOf returns what the worker that holds a message has reported.
func (c *Caller) progressOf(key queueKey, id string) *Progress {
	q := c.broker.queues.find(key)
	if q == nil {
		return nil
	}
	held, _ := q.leases.find(id, c.broker.now())
	return held.progress
}
