package driver

import (
	"context"
	"fmt"
	"iter"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of schedules. They are the same for every backend.
const (
	// MaxSchedules is how many schedules a queue with one shard has at most; one with several
	// may have as many in each.
	MaxSchedules         = 1000
	MaxScheduleNameBytes = 128
	MaxDefinitionBytes   = 256 << 10
	// MaxRuns is how many messages a firing sends at most, and how many of the latest runs a
	// schedule keeps.
	MaxRuns = 10
)

// Attributes of messages that package schedule sends: the name of the schedule, and the due
// time, in the form of time.RFC3339Nano in UTC. A message that was asked for by hand has no
// due time.
const (
	AttributeScheduleName = "mailbox.schedule.name"
	AttributeScheduleDue  = "mailbox.schedule.due"
)

// A Schedule is what a queue stores of one schedule. A backend does not know when it is due.
// Its times are in UTC, in whole milliseconds.
type Schedule struct {
	Name string
	// Definition says when to send what. Backends do not read it.
	Definition []byte
	// Revision is a random number that no earlier or later state of the schedule has, and
	// less than 2⁵³. It is 0 if no schedule has this name.
	Revision uint64
	// Through is the time through which the schedule was dealt with; zero at first. It never
	// goes back.
	Through time.Time
	// Runs are the latest runs, at most MaxRuns, oldest first.
	Runs []Run
	// Now is the time of the backend when it answered.
	Now time.Time
}

// A Run is one message of a schedule.
type Run struct {
	// Due is the time for which it was sent; zero if it was not sent for a due time.
	Due time.Time
	// At is when it was sent, by the clock of the backend.
	At        time.Time
	MessageID string
}

// A Firing changes a schedule and sends messages to its queue, in one step.
type Firing struct {
	Name string
	// Revision is the one that the schedule must have; 0: there must be none.
	Revision uint64
	// Definition replaces the definition, unless it is nil. A new schedule must have one.
	Definition []byte
	// Remove removes the schedule. The fields below are not set then, nor is Definition.
	Remove bool
	// Through is the new time through which the schedule is dealt with. It must not be after
	// the time of the backend. A time before that of the schedule, or zero, leaves it.
	Through time.Time
	// Messages are sent in this order, at most MaxRuns.
	Messages []DueMessage
}

// A DueMessage is a message of a schedule. It has no delay, due time, dedup key, unique key or group: it
// is sent because it is due, at most once, and where its schedule is.
type DueMessage struct {
	// Due is that of Run.
	Due time.Time
	Outgoing
}

// A ScheduleLister lists the queues that have schedules, so that one process can run those of all
// queues. Openers whose queues have the trait Schedules implement it.
type ScheduleLister interface {
	// ScheduledQueues yields the queues that have schedules, in the order of their names. One that
	// gets its first schedule, or loses its last, meanwhile may be left out or not. An error ends the
	// sequence. Codes: ErrUnavailable, ErrClosed.
	ScheduledQueues(ctx context.Context) iter.Seq2[ScheduledQueue, error]
}

// A ScheduledQueue is a queue and how many schedules it has.
type ScheduledQueue struct {
	Name      string
	Schedules int
}

// Check returns nil if a queue with these traits can take the firing, and otherwise an *Error
// (ErrInvalid, ErrTooLarge or ErrUnsupported) that names the field and its limit. Backends call
// it before they do anything.
func (f *Firing) Check(t *Traits) error {
	switch {
	case !t.Schedules:
		return fireError(ErrUnsupported, "", "this queue keeps no schedules")
	case f.Name == "" || len(f.Name) > MaxScheduleNameBytes:
		return fireError(ErrInvalid, "Name", fmt.Sprintf("%d bytes; want 1 to %d", len(f.Name), MaxScheduleNameBytes))
	case !printable(f.Name):
		return fireError(ErrInvalid, "Name", fmt.Sprintf("%q has characters that cannot be printed", f.Name))
	case len(f.Definition) > MaxDefinitionBytes:
		return fireError(ErrTooLarge, "Definition", fmt.Sprintf("%d bytes, at most %d are allowed", len(f.Definition), MaxDefinitionBytes))
	case f.Revision == 0 && f.Definition == nil:
		return fireError(ErrInvalid, "Definition", "a new schedule needs one")
	case f.Remove && (f.Definition != nil || !f.Through.IsZero() || len(f.Messages) > 0):
		return fireError(ErrInvalid, "Remove", "is given with another change; give one of the two")
	case len(f.Messages) > MaxRuns:
		return fireError(ErrInvalid, "Messages", fmt.Sprintf("%d messages, at most %d are allowed", len(f.Messages), MaxRuns))
	}
	if err := checkScheduleTime("Through", f.Through); err != nil {
		return err
	}
	for i := range f.Messages {
		if err := f.Messages[i].check(t); err != nil {
			return err
		}
	}
	return nil
}

func (m *DueMessage) check(t *Traits) error {
	if err := checkScheduleTime("Due", m.Due); err != nil {
		return err
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Delay", m.Delay != 0},
		{"DeliverAt", !m.DeliverAt.IsZero()},
		{"DedupKey", m.DedupKey != ""},
		{"UniqueKey", m.UniqueKey != ""},
		{"Group", m.Group != ""},
	} {
		if field.set {
			return fireError(ErrInvalid, field.name, "a message of a schedule has none")
		}
	}
	return m.Outgoing.Check(t)
}

// checkScheduleTime refuses times that not all backends can store.
func checkScheduleTime(field string, at time.Time) error {
	switch {
	case at.IsZero():
		return nil
	case at.UnixMilli() < 1 || at.Year() > 9999:
		return fireError(ErrInvalid, field, fmt.Sprintf("%v is not within the years 1970 to 9999", at))
	case at.Nanosecond()%int(time.Millisecond) != 0:
		return fireError(ErrInvalid, field, fmt.Sprintf("%v is not a whole number of milliseconds", at))
	}
	return nil
}

// printable reports whether a text is UTF-8 without characters that cannot be printed.
func printable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(text)
}

func fireError(code Code, field, detail string) error {
	return &Error{Code: code, Op: "fire", Field: field, Detail: detail}
}
