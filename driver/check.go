package driver

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits on the small texts of a message and on names. They are the same for
// every backend, so that a program that works on one works on the next. Those of
// attributes are the most that a backend takes: Traits says what a queue takes.
const (
	MaxNameBytes          = 255
	MaxDedupKeyBytes      = 256 // of a unique key too
	MaxGroupBytes         = 256
	MaxReplyToBytes       = 1024
	MaxCorrelationIDBytes = 256
	MaxAttributes         = 64
	MaxAttributeKeyBytes  = 256
	MaxAttributeBytes     = 64 << 10 // keys and values of one message, added up
	MaxCauseBytes         = 4 << 10  // longer causes are cut, not refused
	MaxSealBytes          = 1 << 10
)

// CheckName returns ErrInvalid, saying why, if name cannot name a queue: it
// must be 1…MaxNameBytes bytes of UTF-8 without control characters or braces.
// Braces are kept out because they mean something in Redis key names.
func CheckName(name string) error {
	if len(name) <= MaxNameBytes && isPlainName(name) {
		return nil
	}
	switch {
	case name == "":
		return nameError("is empty")
	case len(name) > MaxNameBytes:
		return nameError(fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxNameBytes))
	case !utf8.ValidString(name):
		return nameError("is not valid UTF-8")
	case strings.ContainsAny(name, "{}"):
		return nameError("contains a brace")
	case strings.ContainsFunc(name, unicode.IsControl):
		return nameError("contains a control character")
	}
	return nil
}

// isPlainName reports whether name has only printable ASCII without braces, as nearly all
// names do. CheckName is called for every message that a daemon seals.
func isPlainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '{' || c == '}' {
			return false
		}
	}
	return name != ""
}

func nameError(detail string) error {
	return &Error{Code: ErrInvalid, Op: "open", Field: "name", Detail: detail}
}

// Check returns nil if a queue with these traits can take m, and otherwise an
// *Error (ErrInvalid, ErrTooLarge or ErrUnsupported) that names the field and
// its limit. Backends call it before they do anything.
func (m *Outgoing) Check(t *Traits) error {
	switch {
	case len(m.Body) > t.MaxBodyBytes:
		return sendError(ErrTooLarge, "Body", fmt.Sprintf("%d bytes, at most %d are allowed", len(m.Body), t.MaxBodyBytes))
	case m.Delay < 0 || m.Delay > t.MaxDelay:
		return sendError(ErrInvalid, "Delay", outside(m.Delay, t.MaxDelay))
	case !m.DeliverAt.IsZero() && m.checkDeliverAt(t) != nil:
		return m.checkDeliverAt(t)
	case m.TTL != 0 && !t.TTL:
		return sendError(ErrUnsupported, "TTL", "messages of this queue have no time to live")
	case m.TTL < 0 || m.TTL > MaxTTL:
		return sendError(ErrInvalid, "TTL", outside(m.TTL, MaxTTL))
	case m.Priority != 0 && checkPriority("send", m.Priority, t) != nil:
		return checkPriority("send", m.Priority, t)
	case m.DedupKey != "" && t.DedupWindow == 0:
		return sendError(ErrUnsupported, "DedupKey", "this queue keeps no dedup window")
	case (m.UniqueKey != "" || m.Replace) && m.checkUnique(t) != nil:
		return m.checkUnique(t)
	case m.Group != "" && !t.Groups:
		return sendError(ErrUnsupported, "Group", "this queue has no groups")
	case len(m.Seal) > 0 && !t.Seals:
		return sendError(ErrUnsupported, "Seal", "this queue keeps no seals")
	case len(m.Seal) > MaxSealBytes:
		return sendError(ErrInvalid, "Seal", fmt.Sprintf("%d bytes, at most %d are allowed", len(m.Seal), MaxSealBytes))
	}
	if m.DedupKey != "" || m.UniqueKey != "" || m.Group != "" || m.ReplyTo != "" || m.CorrelationID != "" {
		if err := m.checkTexts(); err != nil {
			return err
		}
	}
	if len(m.Attributes) > 0 {
		return checkAttributes(m.Attributes, t)
	}
	return nil
}

// checkDeliverAt returns why a queue with these traits cannot take m with its due time, or
// nil.
func (m *Outgoing) checkDeliverAt(t *Traits) error {
	switch ahead := time.Until(m.DeliverAt.Round(0)); {
	case !t.DeliverAt:
		return sendError(ErrUnsupported, "DeliverAt", "this queue takes no due times; give a delay")
	case m.Delay != 0:
		return sendError(ErrInvalid, "DeliverAt", fmt.Sprintf("a delay of %v is given too; give one of the two", m.Delay))
	case ahead > t.MaxDelay:
		return sendError(ErrInvalid, "DeliverAt", tooFar(m.DeliverAt, ahead, t.MaxDelay))
	}
	return nil
}

// checkUnique returns why a queue with these traits cannot take m with its unique key, or nil.
func (m *Outgoing) checkUnique(t *Traits) error {
	switch {
	case !t.UniqueKeys:
		return sendError(ErrUnsupported, "UniqueKey", "messages of this queue have no unique keys")
	case m.UniqueKey == "":
		return sendError(ErrInvalid, "Replace", "needs a unique key")
	case m.Group != "" && t.Ordering == OrderingPerShard:
		return sendError(ErrUnsupported, "UniqueKey", "a queue with several shards takes a group or a unique key, not both")
	}
	return nil
}

// checkPriority returns why a queue with these traits cannot give a message this priority, or
// nil.
func checkPriority(op string, priority int, t *Traits) error {
	switch {
	case !t.Priorities:
		return &Error{Code: ErrUnsupported, Op: op, Field: "Priority", Detail: "messages of this queue have no priorities"}
	case priority < 0 || priority > MaxPriority:
		return &Error{Code: ErrInvalid, Op: op, Field: "Priority", Detail: fmt.Sprintf("%d is outside 0…%d", priority, MaxPriority)}
	}
	return nil
}

// Check returns ErrInvalid or ErrUnsupported, naming the field and its limit, if a queue with
// these traits cannot do e.
func (e Edit) Check(t *Traits) error {
	set := 0
	for _, given := range []bool{e.Remove, e.Ready, !e.DeliverAt.IsZero(), e.Prioritize} {
		if given {
			set++
		}
	}
	invalid := func(field, detail string) error {
		return &Error{Code: ErrInvalid, Op: "edit", Field: field, Detail: detail}
	}
	if set != 1 {
		return invalid("Edit", fmt.Sprintf("%d changes are given; want one of Remove, Ready, DeliverAt and Prioritize", set))
	}
	if e.Prioritize {
		return checkPriority("edit", e.Priority, t)
	}
	if e.Priority != 0 {
		return invalid("Priority", "is set without Prioritize")
	}
	if ahead := time.Until(e.DeliverAt.Round(0)); !e.DeliverAt.IsZero() && ahead > t.MaxDelay {
		return invalid("DeliverAt", tooFar(e.DeliverAt, ahead, t.MaxDelay))
	}
	return nil
}

// Check returns ErrInvalid, naming the field and what is wanted, if q is not a query.
func (q Query) Check() error {
	invalid := func(field, format string, value any) error {
		return &Error{Code: ErrInvalid, Op: "peek", Field: field, Detail: fmt.Sprintf(format, value)}
	}
	switch {
	case q.Limit < 0:
		return invalid("Limit", "%d is negative; 0 means no limit", q.Limit)
	case q.OlderThan < 0:
		return invalid("OlderThan", "%v is negative", q.OlderThan)
	case q.Cursor != nil && (len(q.States) != 1 || q.ID != ""):
		return invalid("Cursor", "%.40q needs one state, and no id", *q.Cursor)
	case q.Last < 0:
		return invalid("Last", "%d is negative; 0 means from the beginning", q.Last)
	case q.Last > 0 && (len(q.States) != 1 || q.States[0] != StateReady && q.States[0] != StateDead || q.ID != "" || q.Cursor != nil):
		return invalid("Last", "%d needs ready or dead as the only state, and neither an id nor a cursor", q.Last)
	case q.Reason != "" && !q.Reason.Valid():
		return invalid("Reason", "%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", q.Reason)
	}
	for _, state := range q.States {
		switch state {
		case StateReady, StateDelayed, StateInFlight, StateDead:
		default:
			return invalid("States", "%q is not a state; want ready, delayed, in flight or dead", state)
		}
	}
	return nil
}

// NotWaiting returns the error of Queue.Edit for a message that does not wait: ErrConflict if
// it is in flight or dead, and ErrNotFound if the queue does not have it (state "").
func NotWaiting(id string, state State) error {
	code, detail := ErrNotFound, "the queue has no such message"
	switch state {
	case StateInFlight:
		code, detail = ErrConflict, "is in flight; only ready and delayed messages can be changed"
	case StateDead:
		code, detail = ErrConflict, "is dead; redrive or discard it"
	}
	return &Error{Code: code, Op: "edit", MessageID: id, Detail: detail}
}

func tooFar(at time.Time, ahead, limit time.Duration) string {
	return fmt.Sprintf("%s is %v ahead, at most %v are allowed", at.UTC().Format(time.RFC3339), ahead.Round(time.Second), limit)
}

func (m *Outgoing) checkTexts() error {
	for _, text := range []struct {
		field, value string
		limit        int
	}{
		{"DedupKey", m.DedupKey, MaxDedupKeyBytes},
		{"UniqueKey", m.UniqueKey, MaxDedupKeyBytes},
		{"Group", m.Group, MaxGroupBytes},
		{"ReplyTo", m.ReplyTo, MaxReplyToBytes},
		{"CorrelationID", m.CorrelationID, MaxCorrelationIDBytes},
	} {
		if len(text.value) > text.limit {
			return sendError(ErrInvalid, text.field, fmt.Sprintf("%d bytes, at most %d are allowed", len(text.value), text.limit))
		}
		if !utf8.ValidString(text.value) {
			return sendError(ErrInvalid, text.field, "is not valid UTF-8")
		}
	}
	return nil
}

func checkAttributes(attributes map[string]string, t *Traits) error {
	if len(attributes) > t.MaxAttributes {
		return sendError(ErrInvalid, "Attributes", fmt.Sprintf("%d entries, at most %d are allowed", len(attributes), t.MaxAttributes))
	}
	total := 0
	for key, value := range attributes {
		switch {
		case key == "":
			return sendError(ErrInvalid, "Attributes", "a key is empty")
		case len(key) > MaxAttributeKeyBytes:
			return sendError(ErrInvalid, "Attributes", fmt.Sprintf("a key has %d bytes, at most %d are allowed", len(key), MaxAttributeKeyBytes))
		case !utf8.ValidString(key) || !utf8.ValidString(value):
			return sendError(ErrInvalid, "Attributes", "an entry is not valid UTF-8")
		}
		total += len(key) + len(value)
	}
	if total > t.MaxAttributeBytes {
		return sendError(ErrInvalid, "Attributes", fmt.Sprintf("%d bytes in all, at most %d are allowed", total, t.MaxAttributeBytes))
	}
	return nil
}

func sendError(code Code, field, detail string) error {
	return &Error{Code: code, Op: "send", Field: field, Detail: detail}
}

// Check returns the request with Max clamped to what the queue allows, or
// ErrInvalid naming the field and its limit.
func (r ReceiveRequest) Check(t *Traits) (ReceiveRequest, error) {
	switch {
	case r.Max < 1:
		return r, receiveError("Max", fmt.Sprintf("%d, at least 1 is needed", r.Max))
	case r.MaxBytes < 0:
		return r, receiveError("MaxBytes", fmt.Sprintf("%d is negative; 0 means no bound", r.MaxBytes))
	case r.Visibility < 0 || r.Visibility > t.MaxVisibility:
		return r, receiveError("Visibility", outside(r.Visibility, t.MaxVisibility))
	case r.Wait < 0:
		return r, receiveError("Wait", fmt.Sprintf("%v is negative", r.Wait))
	case t.MaxWait > 0 && r.Wait > t.MaxWait:
		return r, receiveError("Wait", outside(r.Wait, t.MaxWait))
	}
	r.Max = min(r.Max, t.MaxBatch)
	return r, nil
}

func receiveError(field, detail string) error {
	return &Error{Code: ErrInvalid, Op: "receive", Field: field, Detail: detail}
}

// CheckVisibility returns ErrInvalid if d is outside 0…t.MaxVisibility. It is
// the rule for Extension.Visibility ("extend") and Nack.Delay ("nack").
func CheckVisibility(op, field string, d time.Duration, t *Traits) error {
	if d < 0 || d > t.MaxVisibility {
		return &Error{Code: ErrInvalid, Op: op, Field: field, Detail: outside(d, t.MaxVisibility)}
	}
	return nil
}

// TrimCause cuts a cause to MaxCauseBytes without splitting a character: an
// error text of any length must never be a reason to fail a nack.
func TrimCause(cause string) string {
	if len(cause) <= MaxCauseBytes {
		return cause
	}
	return strings.ToValidUTF8(cause[:MaxCauseBytes], "")
}

func outside(d, limit time.Duration) string {
	return fmt.Sprintf("%v is outside 0…%v", d, limit)
}
