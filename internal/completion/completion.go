// Package completion starts operations on queues without waiting for them: a connection of
// the daemon has thousands of requests under way and one goroutine.
//
// The goroutine that ends an operation calls its completion, with a [Round]. A completion
// writes an answer into the buffer of its connection and adds the connection to the round;
// at the end of the round each connection is flushed once, however many answers it got.
package completion

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Flusher writes what was buffered for a client. Flush must not block for long.
type Flusher interface{ Flush() }

// A Round collects what has to be flushed when a goroutine has made all completions that it
// can make now. The zero value is ready for use, by one goroutine.
type Round struct {
	// Alone says that the goroutine expects no further operation soon. It may then wait for
	// the disk itself instead of waking another goroutine for it.
	Alone bool
	// Buffer is memory that completions may write to, for as long as they run.
	Buffer []byte

	flushers []Flusher
}

// Later flushes f at the end of the round. Callers add a flusher once a round.
func (r *Round) Later(f Flusher) { r.flushers = append(r.flushers, f) }

// End flushes everything, and empties the round for its next use.
func (r *Round) End() {
	for len(r.flushers) > 0 {
		flushers := r.flushers
		r.flushers = nil
		for _, f := range flushers {
			f.Flush()
		}
		if r.flushers == nil {
			clear(flushers)
			r.flushers = flushers[:0]
		}
	}
	if cap(r.Buffer) > maxKeptBuffer {
		r.Buffer = nil
	}
}

var spareRounds = sync.Pool{New: func() any { return new(Round) }}

// NewRound returns a round, to be ended with Close.
func NewRound() *Round { return spareRounds.Get().(*Round) }

// maxKeptBuffer bounds the memory of a round that is kept for reuse.
const maxKeptBuffer = 4 << 10

// Close ends the round, which is not used any more.
func (r *Round) Close() {
	r.End()
	r.Alone = false
	spareRounds.Put(r)
}

// The completions of operations, with their results, which are valid during the call.
type (
	Sent     func(*Round, []driver.Sent, error)
	Settled  func(*Round, error)
	Extended func(*Round, []time.Duration, error)
)

// A Receiver gets the result of a receive, which is valid during the call.
type Receiver interface {
	Received(*Round, []driver.Delivery, error)
}

// Waiting is a receive that waits. Cancel ends the wait: if it has not ended yet, the receive
// is completed with context.Canceled.
type Waiting interface{ Cancel() }

// A Queue is a driver.Queue whose operations can be started. What they promise, and their
// errors, are those of the methods of driver.Queue with the same names.
//
// Start methods do not wait for the disk or for messages. They call the completion once:
// before they return, in the round of the caller, or later, on another goroutine. A
// completion must not block and must not call the queue. Arguments are not used after the
// completion was called, or the Start method has returned.
type Queue interface {
	driver.Queue

	StartSend(r *Round, msgs []driver.Outgoing, done Sent)
	// StartReceive returns nil if the receive does not wait.
	StartReceive(r *Round, req driver.ReceiveRequest, to Receiver) Waiting
	StartAck(r *Round, receipts []driver.Receipt, done Settled)
	StartNack(r *Round, nacks []driver.Nack, done Settled)
	StartExtend(r *Round, extensions []driver.Extension, done Extended)
	StartDeadLetter(r *Round, requests []driver.DeadLetterRequest, done Settled)
}

// Of returns a queue whose operations can be started: q itself if it can do that, and
// otherwise one that calls q on other goroutines and combines operations into calls.
func Of(q driver.Queue) Queue {
	if started, ok := q.(Queue); ok {
		return started
	}
	return newBlocking(q)
}

// Begin calls do on another goroutine, and then what it returned, in a round of its own.
func Begin(do func() func(*Round)) {
	go func() {
		complete := do()
		r := NewRound()
		complete(r)
		r.Close()
	}()
}

// Canceller is the Waiting of a receive that blocks a goroutine.
type Canceller context.CancelFunc

// Cancel implements Waiting.
func (c Canceller) Cancel() { c() }

// CloneOutgoing returns copies of messages that share no memory with them.
func CloneOutgoing(msgs []driver.Outgoing) []driver.Outgoing {
	msgs = slices.Clone(msgs)
	for i := range msgs {
		msgs[i].Body = slices.Clone(msgs[i].Body)
		msgs[i].Attributes = maps.Clone(msgs[i].Attributes)
		msgs[i].Seal = slices.Clone(msgs[i].Seal)
	}
	return msgs
}
