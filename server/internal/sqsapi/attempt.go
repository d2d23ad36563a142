package sqsapi

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

const (
	// attemptLife is how long the id of a receive is remembered.
	attemptLife = 5 * time.Minute
	// maxAttempts and maxAttemptBytes bound what is remembered; the oldest attempts
	// are dropped first.
	maxAttempts     = 10_000
	maxAttemptBytes = 64 << 20
)

// attemptKey names a receive of a FIFO queue.
type attemptKey struct {
	broker.TenantQueue
	id string
}

// An attempt is a receive with an id of the client, which gets the same messages if it
// repeats the receive because the answer was lost.
type attempt struct {
	key      attemptKey
	made     time.Time
	done     chan struct{} // closed when held is known
	held     []broker.Delivery
	bytes    int
	finished bool
}

// An attemptTable remembers the attempts of this daemon.
type attemptTable struct {
	mu    sync.Mutex // guards the fields below and those of attempts
	byKey map[attemptKey]*list.Element
	order *list.List // of *attempt, oldest first
	bytes int
}

func (t *attemptTable) init() {
	t.byKey = make(map[attemptKey]*list.Element)
	t.order = list.New()
}

// begin returns the messages of an earlier receive with the same id, if it is
// remembered, and waits for one that is under way. The caller must call done with the
// messages that it returns. It blocks until ctx ends at most.
func (t *attemptTable) begin(ctx context.Context, key attemptKey) (held []broker.Delivery, done func([]broker.Delivery), err error) {
	for {
		t.mu.Lock()
		found := t.byKey[key]
		if found == nil || time.Since(found.Value.(*attempt).made) >= attemptLife {
			if found != nil {
				t.removeLocked(found)
			}
			made := t.addLocked(key)
			t.mu.Unlock()
			return nil, func(held []broker.Delivery) { t.finish(made, held) }, nil
		}
		known := found.Value.(*attempt)
		if known.finished {
			held := known.held
			t.removeLocked(found)
			made := t.addLocked(key)
			made.made = known.made // attemptLife counts from the first
			t.mu.Unlock()
			return held, func(held []broker.Delivery) { t.finish(made, held) }, nil
		}
		t.mu.Unlock()
		select {
		case <-known.done:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (t *attemptTable) addLocked(key attemptKey) *attempt {
	made := &attempt{key: key, made: time.Now(), done: make(chan struct{})}
	t.byKey[key] = t.order.PushBack(made)
	t.trimLocked()
	return made
}

func (t *attemptTable) removeLocked(e *list.Element) {
	gone := e.Value.(*attempt)
	t.order.Remove(e)
	t.bytes -= gone.bytes
	if t.byKey[gone.key] == e {
		delete(t.byKey, gone.key)
	}
}

// trimLocked drops attempts that are too old or too many.
func (t *attemptTable) trimLocked() {
	for e := t.order.Front(); e != nil; e = t.order.Front() {
		old := time.Since(e.Value.(*attempt).made) >= attemptLife
		if !old && len(t.byKey) <= maxAttempts && t.bytes <= maxAttemptBytes {
			return
		}
		t.removeLocked(e)
	}
}

// finish remembers the messages of an attempt; one without messages is dropped.
func (t *attemptTable) finish(a *attempt, held []broker.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(a.done)
	a.finished = true
	e := t.byKey[a.key]
	if e == nil || e.Value.(*attempt) != a {
		return // it was dropped in the meantime
	}
	if len(held) == 0 {
		t.removeLocked(e)
		return
	}
	a.held = held
	for i := range held {
		a.bytes += heldBytes(&held[i])
	}
	t.bytes += a.bytes
	t.trimLocked()
}

// heldBytes returns about how much memory a remembered delivery takes.
func heldBytes(d *broker.Delivery) int {
	const fixed = 512 // ids, times and the receipt
	size := fixed + len(d.Body) + len(d.Group)
	for name, value := range d.Attributes {
		size += len(name) + len(value)
	}
	return size
}
