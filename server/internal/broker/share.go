package broker

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// maxOperations bounds how many operations the backend is asked for at once:
	// enough for group commits, and few enough that one more does not wait
	// for long. Tenants take turns. A send counts once more for each operationBytes
	// and each operationMessages, and maxOperationUnits times at most.
	maxOperations     = 64
	operationBytes    = 64 << 10
	operationMessages = 64
	maxOperationUnits = 4
	// configureUnits is how often creating or configuring a queue counts: others that
	// are created wait until it is durable, and it takes memory for as long as it exists.
	configureUnits = maxOperationUnits
	// crowdedOperations is how many there are for each thread while several tenants
	// are active, and minCrowded at least: a quarter of it, which is what one of
	// several tokens of one of several tenants has, is enough for the largest send.
	crowdedOperations, minCrowded = 2, 4 * maxOperationUnits
	// maxRequestMemory bounds the memory of requests that are read and of answers
	// that are written.
	maxRequestMemory = 48 << 20
	// copies is how often a body is in memory while it is read, decoded, encoded and
	// written.
	copies = 3
	// maxHold bounds what one request takes of that at once, so that a share is
	// never too small for it.
	maxHold = 2 << 20
	// minAnswer is what a receive may bring in any case, beyond one message, and
	// maxAnswer what it may bring at most, unless the surface says less.
	minAnswer, maxAnswer = 64 << 10, 8 << 20
	// maxRefusals is how many requests are refused for lack of room in a second while
	// several tenants are active. A refusal costs its client nothing and the daemon a
	// request that was read, and often a connection.
	maxRefusals = 32
	// pacedFor is how long a refusal, a creation, an opening and a byte that was peeked at count.
	pacedFor = time.Second
	// maxCreations is how many queues are created in a second while several tenants are
	// active. Each takes about 2 KB of memory for as long as it exists.
	maxCreations = 16
	// maxOpenings is how many queues OAP/1 connections open in a second while several tenants
	// are active. Clients open a queue once; one that does little else keeps a processor busy.
	maxOpenings = 512
	// maxLookBytes is how many bytes of bodies are peeked at in a second while several
	// tenants are active. Each is read, copied and encoded, and nothing is left of it.
	maxLookBytes = 16 << 20
	// turnPatience is how long an operation waits for its turn.
	turnPatience = 5 * time.Second
)

func (b *Broker) initTurns() {
	operations := share.New("operations", "max_operations", maxOperations, retryInFlight)
	operations.SetCrowded(min(maxOperations, max(minCrowded, crowdedOperations*int64(runtime.GOMAXPROCS(0)))))
	b.work = share.NewGate(operations, turnPatience)
	b.memory = share.NewGate(share.New("request memory", "max_request_memory", maxRequestMemory, retryInFlight), turnPatience)
	b.refusals = share.NewGate(share.New("refusals", "max_refusals", maxRefusals, retryInFlight), turnPatience)
	b.creations = share.NewGate(share.New("new queues", "max_new_queues", maxCreations, retryInFlight), turnPatience)
	b.openings = share.NewGate(share.New("queues opened", "max_openings", maxOpenings, retryInFlight), turnPatience)
	b.looks = share.NewGate(share.New("bytes peeked at", "max_look_bytes", maxLookBytes, retryInFlight), turnPatience)
	b.strangers = share.NewGate(share.New("requests without a token", "max_strangers", maxStrangers, retryInFlight), turnPatience)
}

// turn waits until the caller may use the backend, for a number of units. The caller of
// turn calls done. Codes: ErrFull.
func (c *Caller) turn(ctx context.Context, op, queue string, units int64) (err error) {
	owner := c.owner()
	if err := c.broker.work.Enter(ctx, owner[:], units); err != nil {
		c.broker.metrics.Rejected(metricSaturated)
		return refusedShare(err, op, queue)
	}
	return nil
}

// done ends a turn.
func (c *Caller) done(units int64) {
	owner := c.owner()
	c.broker.work.Leave(owner[:], units)
}

// Arrive waits for the caller's turn to begin a connection, for surfaces that keep a
// session for each: a client that connects over and over waits behind its own requests.
func (c Caller) Arrive(ctx context.Context) { c.resume(ctx) }

// resume waits for the caller's turn to go on after it waited for something else. When
// thousands of receives of one tenant end in the same moment, others do not wait for
// all of them.
func (c *Caller) resume(ctx context.Context) {
	owner := c.owner()
	if c.broker.work.Enter(context.WithoutCancel(ctx), owner[:], 1) == nil {
		c.broker.work.Leave(owner[:], 1)
	}
}

// slowRefusal waits for the caller's turn to be refused if err is ErrFull and other tenants are
// active, so that a client that ignores RetryAfter repeats its request seldom. It is for
// refusals of shares: a full queue refuses at once (SND-5).
func (c *Caller) slowRefusal(ctx context.Context, r *completion.Round, err error) {
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrFull {
		return
	}
	_ = c.pace(ctx, r, c.broker.refusals, 1) // the request is refused in any case
}

// pace waits for the caller's turn to do something that is bounded by the second while other
// tenants are active, for a number of units. It flushes the round, if there is one, before it blocks. Codes: ErrFull.
func (c *Caller) pace(ctx context.Context, r *completion.Round, gate *share.Gate, units int64) error {
	owner := c.owner()
	if !c.broker.work.Contested(owner[0]) {
		return nil
	}
	if !gate.TryEnter(owner[:], units) {
		if r != nil {
			r.End()
		}
		if err := gate.Enter(ctx, owner[:], units); err != nil {
			return err
		}
	}
	time.AfterFunc(pacedFor, func() { gate.Leave(owner[:], units) })
	return nil
}

// unitsOf returns the units of a send with this many messages and bytes.
func unitsOf(messages int, bytes int64) int64 {
	return min(1+bytes/operationBytes+int64(messages)/operationMessages, maxOperationUnits)
}

// Hold waits until the caller's share has memory for a request of this size, and returns
// a function that gives it back. Surfaces call it before they read a body.
// Codes: ErrFull.
func (c Caller) Hold(ctx context.Context, bytes int64) (release func(), err error) {
	b, owner := c.broker, c.owner()
	n := min(max(bytes, 1)*copies, maxHold)
	if err := b.memory.Enter(ctx, owner[:], n); err != nil {
		b.metrics.Rejected(metricSaturated)
		return nil, refusedShare(err, "read", "")
	}
	return func() { b.memory.Leave(owner[:], n) }, nil
}

// Answers counts the bytes that a client was sent and has not read yet. The zero value
// is ready for use, by one caller.
type Answers struct {
	gate  *share.Gate
	owner [2]share.Key
	bytes atomic.Int64
}

// Answering returns the same caller, whose receives count against its share of
// memory until Answers.Done. Without it they count until they return.
func (c Caller) Answering(a *Answers) Caller {
	a.gate, a.owner = c.broker.memory, c.owner()
	c.answers = a
	return c
}

// Done gives the memory of all answers so far back: they were written.
func (a *Answers) Done() {
	if n := a.bytes.Swap(0); n > 0 {
		a.gate.Leave(a.owner[:], n)
	}
}

// answer bounds what a receive brings by the memory that the caller may have, and
// takes that. A receive that waits takes nothing beforehand; what it has brought
// counts afterwards.
func (c *Caller) answer(ctx context.Context, req *driver.ReceiveRequest) (taken int64, err error) {
	if req.MaxBytes <= 0 || req.MaxBytes > maxAnswer {
		req.MaxBytes = maxAnswer
	}
	owner := c.owner()
	if req.Wait > 0 {
		room := c.broker.memory.Room(owner[:]) / copies / max(1, c.broker.waits.Held(owner[:1])) // this one is among them
		req.MaxBytes = int(min(int64(req.MaxBytes), max(minAnswer, room)))
		return 0, nil
	}
	taken, err = c.broker.memory.EnterUpTo(ctx, owner[:], minAnswer, int64(req.MaxBytes)*copies)
	if err == nil {
		req.MaxBytes = int(min(int64(req.MaxBytes), max(minAnswer, taken/copies)))
	}
	return taken, err
}

// answered counts what a receive has brought, of what it had taken.
func (c *Caller) answered(taken int64, held []driver.Delivery) {
	brought := int64(0)
	for i := range held {
		brought += int64(len(held[i].Body))
	}
	c.answeredBytes(taken, brought)
}

// answeredBytes is answered for bodies of this many bytes.
func (c *Caller) answeredBytes(taken, brought int64) {
	brought *= copies
	owner := c.owner()
	if c.answers == nil {
		brought = 0
	}
	c.broker.memory.Adjust(owner[:], brought-taken)
	if brought > 0 { // afterwards: Done may give it back at once, for an answer before this one
		c.answers.bytes.Add(brought)
	}
}
