package ruletest

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A Recorder records events from many goroutines.
type Recorder struct {
	began time.Time

	mu    sync.Mutex // guards the fields below
	names []string
	times []time.Duration
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Add records an event that happens now.
func (t *Recorder) Add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
	t.times = append(t.times, time.Since(t.began))
}

// Count returns the number of events.
func (t *Recorder) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.names)
}

// List returns the names of the events, in order.
func (t *Recorder) List() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.names)
}

// When returns the times of the events since NewRecorder.
func (t *Recorder) When() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.times)
}

// A Log is a log that tests can read.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write adds to the log.
func (j *Log) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String returns the log.
func (j *Log) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Logger returns a logger of everything, as lines of JSON.
func (j *Log) Logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
