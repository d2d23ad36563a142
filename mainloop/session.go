package mainloop

import (
	"slices"
	"sync"
	"time"
)

// A Session records the work on a request: the responses of the model, the uses of
// tools, and values that the agent adds. Make one with NewSession. It is safe for
// concurrent use.
type Session struct {
	id string

	mu      sync.Mutex // guards records
	records []any
}

// NewSession returns an empty session with a new id.
func NewSession() *Session { return &Session{id: newID()} }

// ResumeSession returns a session with the id and the records of an earlier one.
func ResumeSession(id string, records ...any) *Session {
	return &Session{id: id, records: slices.Clone(records)}
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Record adds a value to the session. Recorded finds it by its type. It must not be
// changed afterwards.
func (s *Session) Record(value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, value)
}

// Recorded returns the records of type T, in order.
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

// Usage returns the usage of all responses of the session.
func (s *Session) Usage() Usage {
	var sum Usage
	for _, response := range Recorded[Response](s) {
		sum = sum.Add(response.Usage)
	}
	return sum
}

// ToolUses returns the uses of tools, in order.
func (s *Session) ToolUses() []ToolUse { return Recorded[ToolUse](s) }

// A ToolUse is one call of a tool.
type ToolUse struct {
	ToolCall
	// Result is its result, or the error's text if Failed.
	Result   string
	Failed   bool
	Duration time.Duration
}
