package broker

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// maxSelectionBytes bounds the texts of a selection.
const maxSelectionBytes = 4096

// A Selection selects dead letters. Conditions add up; the zero Selection selects all.
type Selection struct {
	driver.Query // without States; OlderThan counts at the start of the job
	Group        string
	Priority     *int   // nil means any
	Text         []byte // is in the body
	Cause        string // the id of Peeked.Cause
	// Until leaves dead letters that died later. It is never after the start of the job. A job that is
	// started again with the same Until goes on where the one before ended.
	Until time.Time
}

func (s *Selection) check() error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "start job", Field: field, Detail: detail}
	}
	texts := len(s.ID) + len(s.Group) + len(s.Text) + len(s.Cause)
	for key, value := range s.Attributes {
		texts += len(key) + len(value)
	}
	switch {
	case len(s.States) > 0:
		return invalid("states", "a job selects dead letters only")
	case s.Priority != nil && (*s.Priority < 0 || *s.Priority > driver.MaxPriority):
		return invalid("priority", fmt.Sprintf("%d is outside 0…%d", *s.Priority, driver.MaxPriority))
	case texts > maxSelectionBytes:
		return invalid("selection", fmt.Sprintf("has %d bytes of text, at most %d are allowed", texts, maxSelectionBytes))
	}
	return s.Query.Check()
}

// Wants reports whether a dead letter is selected by a job that starts at this time. It leaves out those that died after
// Until and those beyond Limit, which the job does.
func (s *Selection) Wants(m *Peeked, started time.Time) bool {
	if s.ID != "" && m.ID != s.ID || s.Reason != "" && m.Reason != s.Reason || s.Group != "" && m.Group != s.Group ||
		s.Priority != nil && m.Priority != *s.Priority || s.OlderThan > 0 && started.Sub(m.EnqueuedAt) < s.OlderThan {
		return false
	}
	for key, value := range s.Attributes {
		if got, ok := m.Attributes[key]; !ok || got != value {
			return false
		}
	}
	if s.Cause != "" && !m.hasCause(s.Cause) {
		return false
	}
	return bytes.Contains(m.Body, s.Text)
}

// Words names the conditions of a selection, for people.
func (s *Selection) Words() string {
	var words []string
	add := func(given bool, name string, value any) {
		if given {
			words = append(words, fmt.Sprintf("%s=%v", name, value))
		}
	}
	add(s.ID != "", "id", s.ID)
	add(s.Reason != "", "reason", s.Reason)
	add(s.Group != "", "group", s.Group)
	add(s.OlderThan > 0, "older_than", s.OlderThan)
	add(s.Cause != "", "cause", s.Cause)
	add(len(s.Text) > 0, "text", "…")
	for _, key := range slices.Sorted(maps.Keys(s.Attributes)) {
		add(true, key, s.Attributes[key])
	}
	if s.Priority != nil {
		add(true, "priority", *s.Priority)
	}
	add(s.Limit > 0, "limit", s.Limit)
	add(true, "until", s.Until.Format(time.RFC3339Nano))
	return strings.Join(words, " ")
}
