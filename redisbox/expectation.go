package redisbox

import (
	"context"
	"time"
)

// An expectation is a slot that this process has made and has been told about since:
// who waits for it here need not ask first.
type expectation struct {
	id      string
	told    chan string // see bucket.join
	created time.Time   // by the server
	ends    time.Time   // by our clock, at the earliest
}

// maxExpected is how many slots of a bucket are expected. Of those that were made
// before, nothing is lost: who waits for them asks.
const maxExpected = 128

// expectations are the slots of a bucket that were made last and that nobody has
// waited for yet. The mutex of the bucket guards them.
type expectations struct {
	byID map[string]*expectation
	ring [maxExpected]*expectation
	next int
}

// add puts an expectation in, and returns the one that has to go for it, if any.
func (e *expectations) add(added *expectation) (gone *expectation) {
	if e.byID == nil {
		e.byID = make(map[string]*expectation)
	}
	if oldest := e.ring[e.next]; oldest != nil && e.byID[oldest.id] == oldest {
		gone = e.take(oldest.id)
	}
	e.ring[e.next], e.byID[added.id] = added, added
	e.next = (e.next + 1) % maxExpected
	return gone
}

// take removes an expectation and returns it; nil if there is none.
func (e *expectations) take(id string) *expectation {
	found := e.byID[id]
	delete(e.byID, id)
	return found
}

// prepare registers for a slot that is about to be made. It returns nil if nobody
// listens yet: that begins with the first who waits.
func (k *bucket) prepare(ctx context.Context, id string) chan string {
	if !k.ear.listens.Load() {
		return nil
	}
	return k.join(ctx, id)
}

// expect notes that a slot was made.
func (k *bucket) expect(made *expectation) {
	k.unexpect(made.id) // an earlier one of the same id
	k.mu.Lock()
	gone := k.expected.add(made)
	k.mu.Unlock()
	if gone != nil {
		k.leave(gone.id, gone.told)
	}
}

// expectation takes what is known of a slot that this process has made; nil if
// that is nothing.
func (k *bucket) expectation(id string) *expectation {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.expected.take(id)
}

// unexpect forgets a slot that is to be removed.
func (k *bucket) unexpect(id string) {
	if made := k.expectation(id); made != nil {
		k.leave(id, made.told)
	}
}
