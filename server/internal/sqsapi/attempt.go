package sqsapi

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

const (
	// attemptLife is how long the id of a receive is known.
	attemptLife = 5 * time.Minute
	// maxAttempts and maxAttemptBytes bound what is remembered; the oldest goes
	// first.
	maxAttempts     = 10_000
	maxAttemptBytes = 64 << 20
)

// attemptKey names a receive of a FIFO queue.
type attemptKey struct {
	broker.TenantQueue
	id string
}

// An attempt is a receive that a client gave an id, so that it gets the same
// messages if it asks again because the answer was lost.
type attempt struct {
	key      attemptKey
	made     time.Time
	done     chan struct{} // closed when held is known
	held     []broker.Delivery
	bytes    int
	finished bool
}

// An attemptTable remembers attempts, in this daemon.
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

// begin returns what an earlier receive with the same id brought, if it is
// remembered, and waits for one that is under way. The caller calls done with what
// it hands out. It blocks until ctx ends at most.
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
			made.made = known.made // five minutes from the first
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

// trimLocked forgets what is too old or too much.
func (t *attemptTable) trimLocked() {
	for e := t.order.Front(); e != nil; e = t.order.Front() {
		old := time.Since(e.Value.(*attempt).made) >= attemptLife
		if !old && len(t.byKey) <= maxAttempts && t.bytes <= maxAttemptBytes {
			return
		}
		t.removeLocked(e)
	}
}

// finish remembers what an attempt brought; one that brought nothing is forgotten.
func (t *attemptTable) finish(a *attempt, held []broker.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(a.done)
	a.finished = true
	e := t.byKey[a.key]
	if e == nil || e.Value.(*attempt) != a {
		return // it was forgotten meanwhile
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

// heldBytes is about how much memory a delivery that is remembered takes.
func heldBytes(d *broker.Delivery) int {
	const fixed = 512 // ids, times and the receipt
	size := fixed + len(d.Body) + len(d.Group)
	for name, value := range d.Attributes {
		size += len(name) + len(value)
	}
	return size
}
