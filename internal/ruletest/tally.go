package ruletest

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A Tally takes down what happens, from many goroutines.
type Tally struct {
	began time.Time

	mu    sync.Mutex // guards the fields below
	names []string
	times []time.Duration
}

// NewTally returns an empty tally.
func NewTally() *Tally { return &Tally{began: time.Now()} }

// Add takes down that something happened now.
func (t *Tally) Add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
	t.times = append(t.times, time.Since(t.began))
}

// Count returns how much happened.
func (t *Tally) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.names)
}

// List returns what happened, in order.
func (t *Tally) List() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.names)
}

// When returns when it happened, since the tally was made.
func (t *Tally) When() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.times)
}

// A Journal is a log that can be read.
type Journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write adds to the log.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String returns the log.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Logger returns a logger of everything, as lines of JSON.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
