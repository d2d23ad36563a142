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
}

// add has a request done.
func (l *lane) add(ctx context.Context, r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := len(l.payloads)
	// If this moves the array, earlier requests keep the old one.
	l.payloads = append(l.payloads, r.payload...)
	copied := *r
	copied.payload = l.payloads[start:len(l.payloads):len(l.payloads)]
	l.pending = append(l.pending, copied)
	if !l.busy {
		l.busy = true
		l.worker.conn = l.conn
		l.conn.work.Go(func() { l.run(ctx) })
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
		l.mu.Unlock()

		l.worker.run(ctx, requests)
		l.conn.out.flush()

		if cap(payloads) <= keptBuffer {
			l.mu.Lock()
			l.spare, l.spareB = emptied(requests), payloads[:0]
			l.mu.Unlock()
		}
	}
}
