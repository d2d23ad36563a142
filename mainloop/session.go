package mainloop

import (
	"slices"
	"sync"
	"time"
)

// A Session is what happened while a request was worked on: the responses of the
// model, the uses of tools, and whatever the agent records. Make one with
// NewSession. It is safe for concurrent use.
type Session struct {
	id string

	mu      sync.Mutex // guards records
	records []any
}

// NewSession returns an empty session with a new id.
func NewSession() *Session { return &Session{id: newID()} }

// ResumeSession returns a session with the id of an earlier one, and what is known
// of that.
func ResumeSession(id string, records ...any) *Session {
	return &Session{id: id, records: slices.Clone(records)}
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Record adds something to the session, to be found by its type. It must not be
// changed afterwards.
func (s *Session) Record(value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, value)
}

// Recorded returns all that a session has of type T, in order.
func Recorded[T any](s *Session) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []T
	for _, record := range s.records {
		if value, ok := record.(T); ok {
			found = append(found, value)
		}
	}
	return found
}

// Usage is what all responses of the session have used.
func (s *Session) Usage() Usage {
	var sum Usage
	for _, response := range Recorded[Response](s) {
		sum = sum.Add(response.Usage)
	}
	return sum
}

// ToolUses returns the uses of tools, in order.
func (s *Session) ToolUses() []ToolUse { return Recorded[ToolUse](s) }

// A ToolUse is a tool that was called.
type ToolUse struct {
	ToolCall
	// Result is what it returned, or the error's text if Failed.
	Result   string
	Failed   bool
	Duration time.Duration
}
