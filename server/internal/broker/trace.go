package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// An Event is one thing that happened to a message.
type Event struct {
	At   time.Time
	Kind EventKind
	// By is the token on whose behalf it happened; zero if the broker did it.
	By capability.TokenID
	// Attempt is the delivery that it concerns; 0 if none, or if not known.
	Attempt int
	// Note is the cause of a nack, the reason of a death, how long an extension
	// is, and so on.
	Note string
}

// An EventKind says what happened.
type EventKind string

// What can happen to a message.
const (
	EventSent         EventKind = "sent"
	EventDelivered    EventKind = "delivered"
	EventExtended     EventKind = "extended"
	EventFailed       EventKind = "failed"
	EventDeadLettered EventKind = "dead-lettered"
	EventRedriven     EventKind = "redriven"
	EventDiscarded    EventKind = "discarded"
	EventAcked        EventKind = "acked"
)

// A Life is what is known of one message.
type Trace struct {
	// Message is as it lies in the queue now; nil if it is not there any more.
	Message *Peeked
	// Events are what happened through this broker, oldest first, as far as it
	// is remembered.
	Events []Event
}

// messageID is a ULID in 16 bytes. Messages of backends with other ids have no
// remembered lives.
type messageID [16]byte

func parseMessageID(text string) (id messageID, ok bool) {
	if len(text) != ulid.EncodedSize {
		return id, false
	}
	parsed, err := ulid.Parse(text)
	return messageID(parsed), err == nil
}

// An entry is an event in the book.
type tracedEvent struct {
	message messageID
	queue   *queueKey
	at      int64 // Unix nanoseconds; 0 is an empty place
	by      holder
	kind    EventKind
	attempt int32
	note    string
}

const (
	traceShards = 16
	// maxNoteBytes keeps causes from filling the memory.
	maxNoteBytes = 200
)

// A traceTable remembers the latest events, in rings by message, so that looking
// up a message looks through one of them.
type traceTable struct{ rings [traceShards]traceRing }

type traceRing struct {
	mu      sync.Mutex
	entries []tracedEvent
	next    int
}

func (l *traceTable) init(events int) {
	for i := range l.rings {
		l.rings[i].entries = make([]tracedEvent, max(0, events)/traceShards)
	}
}

// ring of a message: the last byte of a ULID is random or counts.
func (l *traceTable) ring(id messageID) *traceRing { return &l.rings[id[15]%traceShards] }

// note writes an event down.
func (l *traceTable) note(t *queueKey, id string, by holder, kind EventKind, attempt int, note string, at time.Time) {
	message, ok := parseMessageID(id)
	if !ok {
		return
	}
	note = shortened(note)
	r := l.ring(message)
	if len(r.entries) == 0 {
		return
	}
	r.mu.Lock()
	r.entries[r.next] = tracedEvent{message, t, at.UnixNano(), by, kind, int32(attempt), note}
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
		e := &r.entries[(r.next+i)%len(r.entries)]
		if e.message == message && e.at != 0 && *e.queue == t {
			events = append(events, Event{time.Unix(0, e.at).UTC(), e.kind, e.by.token, int(e.attempt), e.note})
		}
	}
	return events
}

// acked reports whether exactly this token acked a message not long ago.
func (l *traceTable) acked(t queueKey, id string, by holder) bool {
	message, ok := parseMessageID(id)
	if !ok {
		return false
	}
	r := l.ring(message)
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.entries, func(e tracedEvent) bool {
		return e.message == message && e.kind == EventAcked && e.by == by && *e.queue == t
	})
}

// Life tells what happened to a message: what is remembered of it, and where it
// is now. It needs a token for peeking, and may block on I/O. Codes: ErrNotFound
// if nothing is known of it.
func (c Caller) Trace(ctx context.Context, queue, id string) (Trace, error) {
	grant, err := c.authorize(ctx, capability.OpPeek, queue)
	if err != nil {
		return Trace{}, err
	}
	if err := c.broker.admit("look", queue, lastForReads); err != nil {
		return Trace{}, err
	}
	traces := Trace{Events: c.broker.traces.events(queueKey{c.tenant, queue}, id)}
	for peeked, err := range c.look(ctx, queue, driver.Query{ID: id, Limit: 1}) {
		if err != nil {
			if len(traces.Events) > 0 {
				break
			}
			return Trace{}, err
		}
		grant.Charge(1, int64(len(peeked.Body)))
		traces.Message = &peeked
	}
	if traces.Message == nil && len(traces.Events) == 0 {
		return Trace{}, &driver.Error{Code: driver.ErrNotFound, Op: "look", Queue: queue, MessageID: id, Detail: "nothing is known of it"}
	}
	return traces, nil
}
