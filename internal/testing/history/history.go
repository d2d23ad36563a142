package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A History is the calls of the clients of one queue with their results, in no particular
// order. A Recorder makes one; Check checks it.
type History struct {
	Events []Event
}

// An Op is a kind of event.
type Op string

// The kinds of events. All but OpCrash are calls.
const (
	OpSend       Op = "send"
	OpReceive    Op = "receive"
	OpAck        Op = "ack"
	OpNack       Op = "nack"
	OpExtend     Op = "extend"
	OpDeadLetter Op = "dead letter"
	OpRedrive    Op = "redrive"
	OpDiscard    Op = "discard"
	OpPurge      Op = "purge"
	OpPurgeDead  Op = "purge dead"
	// OpCrash is the time in which a backend is down.
	OpCrash Op = "crash"
)

// An Outcome is what is known about the effect of an event.
type Outcome string

// The outcomes.
const (
	// OutcomeOK: it took effect.
	OutcomeOK Outcome = "ok"
	// OutcomeFail: it did not.
	OutcomeFail Outcome = "fail"
	// OutcomeUnknown: it took effect or not, or still may.
	OutcomeUnknown Outcome = "unknown"
)

// An Event is one element of one call: a batch of three is three events. A call without
// elements, such as an empty receive, is one event without a message.
type Event struct {
	// Process names the recorder, and Call numbers its calls. Position is the position in the
	// batch.
	Process  string `json:"process,omitempty"`
	Call     uint64 `json:"call"`
	Position int    `json:"position,omitempty"`

	Op      Op          `json:"op"`
	Outcome Outcome     `json:"outcome"`
	Code    driver.Code `json:"code,omitempty"` // of a failure, where it has one
	Invoke  Stamp       `json:"invoke"`
	Return  Stamp       `json:"return"`

	// ID is set where the client knows it: for successful sends, deliveries, and the ids given
	// to redrive and discard, where an event without an id means all.
	ID        string         `json:"id,omitempty"`
	Receipt   driver.Receipt `json:"receipt,omitzero"`
	Digest    string         `json:"digest,omitempty"` // of the body sent or received
	Group     string         `json:"group,omitempty"`
	DedupKey  string         `json:"dedup_key,omitempty"`
	Duplicate bool           `json:"duplicate,omitempty"`
	// Duration is the delay of a send or nack, and the visibility of a receive
	// or extension.
	Duration   time.Duration `json:"duration,omitempty"`
	Deliveries int           `json:"deliveries,omitempty"`
	// Count is the number of messages that a redrive, discard or purge returns.
	Count int `json:"count,omitempty"`
}

// A Stamp is a point in time. Tick orders the points of one process: it comes from one counter,
// so it separates events at one moment of a clock, which are common in virtual time. Time is
// for durations, and for the order between processes. It is the process's wall clock at its
// first stamp plus the monotonic time since then, in Unix nanoseconds.
type Stamp struct {
	Tick uint64 `json:"tick"`
	Time int64  `json:"time"`
}

// String describes an event in one line.
func (e *Event) String() string {
	text := fmt.Sprintf("%s #%d", e.Op, e.Call)
	if e.Process != "" {
		text = e.Process + " " + text
	}
	if e.Deliveries > 0 {
		text += fmt.Sprintf(" (delivery %d)", e.Deliveries)
	}
	if e.Duration > 0 {
		text += fmt.Sprintf(" (%v)", e.Duration)
	}
	if e.Op == OpSend && e.DedupKey != "" {
		text += fmt.Sprintf(" (key %s)", e.DedupKey)
	}
	took := time.Duration(e.Return.Time - e.Invoke.Time)
	return fmt.Sprintf("%s %s at tick %d…%d, %s + %v", text, e.Outcome, e.Invoke.Tick, e.Return.Tick,
		time.Unix(0, e.Invoke.Time).UTC().Format("15:04:05.000000"), took)
}

// sameCall reports whether two events are elements of one batch.
func (e *Event) sameCall(other *Event) bool {
	return e.Process == other.Process && e.Call == other.Call
}

// Write writes the history as one JSON object per line.
func (h History) Write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffered)
	for i := range h.Events {
		if err := encoder.Encode(&h.Events[i]); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	return buffered.Flush()
}

// ReadHistory reads histories written by Write and merges those of several processes; their
// names must differ.
func ReadHistory(readers ...io.Reader) (History, error) {
	var h History
	for _, r := range readers {
		decoder := json.NewDecoder(r)
		for {
			var e Event
			err := decoder.Decode(&e)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return History{}, fmt.Errorf("read history: event %d: %w", len(h.Events)+1, err)
			}
			h.Events = append(h.Events, e)
		}
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.Invoke.Time, b.Invoke.Time) })
	return h, nil
}
