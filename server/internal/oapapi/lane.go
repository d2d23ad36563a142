package oapapi

import (
	"context"
	"sync"
)

// The lanes of a connection.
const (
	laneSend = iota
	laneSettle
	laneCount
)

// lane does requests of a kind that the backend takes its time for. While it is
// at it, more requests come together, which it then does in one call: the slower
// the backend, the more of them share what makes it slow. Requests of a lane are
// done in order.
type lane struct {
	conn   *conn
	worker worker // belongs to the goroutine that runs

	mu       sync.Mutex // guards the fields below
	pending  []request
	payloads []byte // of pending; the reader's buffer is used again
	spare    []request
	spareB   []byte
	busy     bool
	// taken is signalled when pending was; for the reader who waits for room.
	taken sync.Cond
}

// laneBytes is how much may wait in a lane before the reader does.
const laneBytes = 4 << 20

// add has a request done. It blocks while a lot waits to be: the client has to
// wait too then.
func (l *lane) add(ctx context.Context, r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy && len(l.payloads) > 0 && len(l.payloads)+len(r.payload) > laneBytes {
		if l.conn.held { // others have answers to give meanwhile
			l.mu.Unlock()
			l.conn.letGo()
			l.mu.Lock()
			continue
		}
		l.taken.Wait()
	}
	start := len(l.payloads)
	// If this moves the array, earlier requests keep the old one.
	l.payloads = append(l.payloads, r.payload...)
	copied := *r
	copied.payload = l.payloads[start:len(l.payloads):len(l.payloads)]
	l.pending = append(l.pending, copied)
	if !l.busy {
		l.busy = true
		l.worker.conn = l.conn
		l.conn.soon(func() { l.run(ctx) })
	}
}

// run does what is there until there is nothing.
func (l *lane) run(ctx context.Context) {
	for {
		l.mu.Lock()
		requests, payloads := l.pending, l.payloads
		if len(requests) == 0 {
			l.busy = false
			l.mu.Unlock()
			return
		}
		l.pending, l.payloads = l.spare, l.spareB
		l.spare, l.spareB = nil, nil
		l.taken.Broadcast()
		l.mu.Unlock()

		l.worker.run(ctx, requests)
		l.conn.out.flush()

		clear(payloads)
		if cap(payloads) <= keptBuffer {
			l.mu.Lock()
			l.spare, l.spareB = emptied(requests), payloads[:0]
			l.mu.Unlock()
		}
	}
}
