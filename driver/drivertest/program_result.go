package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
)

// A result is the result of an operation.
type result struct {
	text string
	// hints are the RetryAfter values of the operation's ErrFull errors.
	hints []time.Duration
	// inexact: the backend does not promise this result.
	inexact bool
}

func (r *result) addf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) + "\n" }

// agrees reports whether got matches r. A hint of SomeTime matches any; with exactHints the
// others must match to the millisecond.
func (r result) agrees(got result, exactHints bool) bool {
	return r.text == got.text && slices.EqualFunc(r.hints, got.hints, func(want, got time.Duration) bool {
		if exactHints && want != queuemodel.SomeTime {
			return want.Truncate(time.Millisecond) == got.Truncate(time.Millisecond)
		}
		return (want > 0) == (got > 0)
	})
}

const (
	someHint  = "with a retry hint"
	exactHint = "with the retry hint"
)

func (r result) String() string {
	text := r.text
	for _, hint := range r.hints {
		switch hint {
		case 0:
			text += "without a retry hint\n"
		case queuemodel.SomeTime:
			text += someHint + "\n"
		default:
			text += fmt.Sprintf("%s %v\n", exactHint, hint)
		}
	}
	return text
}

// addShape records an error that does not keep positions.
func (r *result) addShape(err error) {
	if _, ok := errors.AsType[*driver.BatchError](err); err != nil && !ok {
		r.addf("the call failed as a whole: %v", err)
	}
}

// isGone reports whether a call failed as a whole because its handle was closed or its queue
// deleted.
func isGone(err error) bool {
	_, isBatch := errors.AsType[*driver.BatchError](err)
	return !isBatch && (errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrNotFound))
}

// verdict returns the code of an error. Backends must return it in an *Error.
func verdict(err error) string {
	if err == nil {
		return "ok"
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return string(e.Code)
	}
	return fmt.Sprintf("%T: %v", err, err)
}

// describe prints all fields of a message.
func (p *executor) describe(msg *driver.Message) string {
	text := fmt.Sprintf("%v %q delivery %d, enqueued %s, first received %s",
		p.number(msg.ID), msg.Body, msg.Deliveries, p.time(msg.EnqueuedAt), p.time(msg.FirstReceivedAt))
	if len(msg.Attributes) > 0 {
		text += " " + describeAttributes(msg.Attributes)
	}
	if msg.Priority != 0 {
		text += fmt.Sprintf(", priority %d", msg.Priority)
	}
	for _, part := range []struct{ name, value string }{
		{"group", msg.Group}, {"reply to", msg.ReplyTo}, {"correlation", msg.CorrelationID}, {"last error", msg.LastError},
	} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text
}

func (p *executor) describeDead(letter *driver.DeadLetter) string {
	source := letter.Source
	if source == p.name { // names differ from run to run
		source = "here"
	}
	return fmt.Sprintf("%s; from %q, reason %q, type %q, died %s, %d redrives",
		p.describe(&letter.Message), source, letter.Reason, letter.ErrorType, p.time(letter.DeadAt), letter.Redrives)
}

// time prints a wall time as time since the start. It is cut to milliseconds, because stores
// may keep no more of it. Untimed programs print only whether it is set.
func (p *executor) time(t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case p.untimed:
		return "at some time"
	}
	return t.Sub(p.start).Truncate(time.Millisecond).String()
}

// A sighting is a message found by Peek.
type sighting struct {
	text   string
	tie    string // delayed and in-flight messages of one tie may come in any order
	number messageNumber
	label  string // in a story
}

func (p *executor) sight(peeked *driver.Peeked) sighting {
	s := sighting{number: p.number(peeked.ID)}
	if !p.verbose {
		s.label = string(peeked.State) + "=" + p.story.label(&peeked.DeadLetter, queueName)
		isDead := peeked.State == driver.StateDead
		if isDead == peeked.DeadAt.IsZero() || isDead == (peeked.Reason == "") || isDead == (peeked.Source == "") {
			s.label += "!death"
		}
		if waits := peeked.State == driver.StateDelayed || peeked.State == driver.StateInFlight; waits == peeked.DueAt.IsZero() {
			s.label += "!due"
		}
	}
	s.text = string(peeked.State) + " " + p.describeDead(&peeked.DeadLetter)
	if peeked.State == driver.StateDelayed || peeked.State == driver.StateInFlight {
		due := p.time(peeked.DueAt)
		s.text += ", due " + due
		s.tie = string(peeked.State) + due
	}
	return s
}

// sortTies orders by number what has no defined order: each run of sightings with one tie.
func sortTies(found []sighting) {
	for first := 0; first < len(found); {
		after := first + 1
		for after < len(found) && found[first].tie != "" && found[after].tie == found[first].tie {
			after++
		}
		slices.SortFunc(found[first:after], func(a, b sighting) int { return int(a.number - b.number) })
		first = after
	}
}
