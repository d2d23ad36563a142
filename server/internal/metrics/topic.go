package metrics

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Topic is the counts of one topic, or of all those that have no series of their
// own. It is kept for as long as the daemon runs, because counts never go back, and
// most topics rest most of the time. So it is numbers, and nothing of Prometheus:
// series are made of them when somebody asks.
type Topic struct {
	Label string
	since time.Time // when it began to count

	sent, repeated, handed, redriven atomic.Uint64
	acked, nacked, deadLettered      atomic.Uint64
	extended                         atomic.Uint64
	removed, dropped, keyless        atomic.Uint64

	mu    sync.Mutex // guards the fields below
	died  map[string]uint64
	level Level
}

func newTopic(label string) *Topic { return &Topic{Label: label, since: time.Now()} }

// Sent counts messages that were accepted, and repeats.
func (t *Topic) Sent(accepted, repeats int) {
	t.sent.Add(uint64(accepted))
	if repeats > 0 {
		t.repeated.Add(uint64(repeats))
	}
}

// Delivered counts deliveries.
func (t *Topic) Delivered(n int) { t.handed.Add(uint64(n)) }

// Settled counts deliveries that were acked, nacked, dead-lettered or extended.
func (t *Topic) Settled(how string, n int) {
	switch how {
	case "ack":
		t.acked.Add(uint64(n))
	case "nack":
		t.nacked.Add(uint64(n))
	case "dead-letter":
		t.deadLettered.Add(uint64(n))
	case "extend":
		t.extended.Add(uint64(n))
	}
}

// Died counts dead letters.
func (t *Topic) Died(reason string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.died == nil {
		t.died = make(map[string]uint64)
	}
	t.died[reason] += uint64(n)
}

// Keyless counts messages that were sent without a dedup key where one is expected.
func (t *Topic) Keyless(n int) { t.keyless.Add(uint64(n)) }

// Removed counts dead letters that retention removed.
func (t *Topic) Removed(n int) { t.removed.Add(uint64(n)) }

// Dropped counts messages that were dropped because they were too old.
func (t *Topic) Dropped(n int) { t.dropped.Add(uint64(n)) }

// Redriven counts dead letters that were made ready again.
func (t *Topic) Redriven(n int) { t.redriven.Add(uint64(n)) }

// Measured sets how full the topic is.
func (t *Topic) Measured(l Level) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.level = l
}
