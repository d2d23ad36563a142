package completion

import (
	"context"
	"errors"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// A combiner makes calls of a backend for operations of one kind. Operations that are
// started while a call is under way wait, and go into the next call together, in the order
// in which they were started. No operation waits for others to arrive.
//
// Combining changes no result. An operation is never divided between calls, and one that
// exceeds a limit has a call of its own. If a backend refuses a call as a whole, the
// operations in it are called one by one. Only an error that says that the backend did not
// answer reaches operations whose own call might have succeeded.
//
// A combiner uses no goroutine while it has no operations. Its callers bound how many wait.
type combiner[E, R, D any] struct {
	*kind[E, R, D]
	queue   driver.Queue
	workers *workers
	call    func(context.Context, []E) ([]R, error)

	mu    sync.Mutex      // guards the fields below
	first *batch[E, R, D] // batches that wait, in order
	last  *batch[E, R, D] // operations join it while they fit
	calls int             // under way
	busy  uint64          // the lines of calls under way
}

// A kind of operations has elements E, results R by position, and completions D.
type kind[E, R, D any] struct {
	complete func(done D, r *Round, results []R, err error)
	// lines returns a set of bits. Calls that share one are made one after the other, in
	// order. alone says that an operation with this element has a call of its own.
	lines func(t driver.Traits, e *E) (lines uint64, alone bool)
	// size returns the bytes of an element, and keep makes it independent of the caller's
	// memory. They are nil for elements that have no bodies.
	size func(*E) int
	keep func(*E, *arena)

	batches sync.Pool // of *batch[E, R, D], empty
}

// allLines is the lines of operations that are all made one after the other.
const allLines = ^uint64(0)

// A batch holds the operations of one call.
type batch[E, R, D any] struct {
	combiner   *combiner[E, R, D]
	next       *batch[E, R, D]
	elements   []E
	operations []operation[D]
	bytes      int
	lines      uint64
	closed     bool // no other operation joins
	memory     arena
}

type operation[D any] struct {
	elements int
	done     D
}

const (
	// maxCallBytes bounds the bodies and attributes in a call of several operations.
	maxCallBytes = 4 << 20
	// maxCalls bounds the calls of one kind that are under way for a queue. While one is,
	// others begin only with batches that no operation can join: calls that are not full
	// cost more than they gain.
	maxCalls = 16
)

func (c *combiner[E, R, D]) init(b *blocking, k *kind[E, R, D], call func(context.Context, []E) ([]R, error)) {
	c.queue, c.workers, c.kind, c.call = b.Queue, &b.workers, k, call
}

// start starts an operation. It does not block, and keeps no reference to elements. It makes
// no call on the goroutine of the caller, even if the round is alone: a backend that hangs
// must not keep a connection from reading.
func (c *combiner[E, R, D]) start(elements []E, done D) {
	traits := c.queue.Traits()
	var bytes int
	var lines uint64
	var alone bool
	for i := range elements {
		if c.size != nil {
			bytes += c.size(&elements[i])
		}
		ofElement, apart := c.lines(traits, &elements[i])
		lines, alone = lines|ofElement, alone || apart
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.last; last == nil || alone || last.closed ||
		len(last.elements)+len(elements) > traits.MaxBatch || last.bytes+bytes > maxCallBytes {
		c.appendLocked()
	}
	c.last.add(c.kind, elements, bytes, done)
	c.last.lines |= lines
	c.last.closed = alone || len(c.last.elements) >= traits.MaxBatch
	c.beginLocked()
}

// appendLocked adds an empty batch.
func (c *combiner[E, R, D]) appendLocked() {
	b := c.newBatch()
	b.combiner = c
	if c.last == nil {
		c.first = b
	} else {
		c.last.next = b
	}
	c.last = b
}

// beginLocked begins the calls that can be made now. A batch that operations can still
// join waits while a call is under way.
func (c *combiner[E, R, D]) beginLocked() {
	for b := c.takeLocked(c.calls == 0); b != nil; b = c.takeLocked(false) {
		c.workers.start(b)
	}
}

// run makes the call for a batch, and further calls until none can be made.
func (b *batch[E, R, D]) run(r *Round) {
	c := b.combiner
	for b != nil {
		lines := b.lines
		c.perform(r, b)
		r.End()
		b = c.next(lines)
	}
}

// next ends a call on these lines, and returns the batch of the next one, or nil.
func (c *combiner[E, R, D]) next(lines uint64) *batch[E, R, D] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
	c.busy &^= lines
	b := c.takeLocked(true)
	c.beginLocked()
	return b
}

// takeLocked returns the first batch whose lines are free, or nil. The last batch, which
// operations may still join, counts only if open is true.
func (c *combiner[E, R, D]) takeLocked(open bool) *batch[E, R, D] {
	if c.calls == maxCalls {
		return nil
	}
	var before *batch[E, R, D]
	for b, busy := c.first, c.busy; b != nil && busy != allLines; before, b = b, b.next {
		if b.lines&busy != 0 || !open && !b.closed && b == c.last {
			busy |= b.lines // later batches must not overtake it
			continue
		}
		c.removeLocked(before, b)
		c.calls++
		c.busy |= b.lines
		return b
	}
	return nil
}

// removeLocked removes a batch from the list; before is the one before it, or nil.
func (c *combiner[E, R, D]) removeLocked(before, b *batch[E, R, D]) {
	if before == nil {
		c.first = b.next
	} else {
		before.next = b.next
	}
	if c.last == b {
		c.last = before
	}
	b.next = nil
}

// perform makes the call for a batch, and completes its operations.
func (c *combiner[E, R, D]) perform(r *Round, b *batch[E, R, D]) {
	results, err := c.call(context.Background(), b.elements) // what was started is completed
	partial, _ := errors.AsType[*driver.BatchError](err)
	whole := err != nil && partial == nil
	switch {
	case len(b.operations) == 1:
		c.complete(b.operations[0].done, r, results, err)
	case whole && isRefusal(err):
		c.performEach(r, b)
	default:
		from := 0
		for _, op := range b.operations {
			to := from + op.elements
			if partial != nil {
				err = driver.NewBatchError(between(partial.Errs, from, to))
			}
			c.complete(op.done, r, between(results, from, to), err)
			from = to
		}
	}
	if !whole { // otherwise the backend may still use the memory
		c.recycle(b)
	}
}

// performEach makes a call for each operation of a batch, and completes it.
func (c *combiner[E, R, D]) performEach(r *Round, b *batch[E, R, D]) {
	from := 0
	for _, op := range b.operations {
		to := from + op.elements
		results, err := c.call(context.Background(), b.elements[from:to:to]) // as in perform
		c.complete(op.done, r, results, err)
		r.End() // the other calls may take long
		from = to
	}
}

// isRefusal reports whether an error of a call as a whole says that the backend did
// nothing because of the arguments, and could do it for some of them.
func isRefusal(err error) bool {
	for _, code := range []driver.Code{
		driver.ErrInvalid, driver.ErrTooLarge, driver.ErrEncoding, driver.ErrFull, driver.ErrConflict,
		driver.ErrUnsupported, driver.ErrReceiptExpired,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// between returns the part of values from one position to another. Values may be too
// short, or nil.
func between[T any](values []T, from, to int) []T {
	from, to = min(from, len(values)), min(to, len(values))
	if from == to {
		return nil
	}
	return values[from:to:to]
}

func (k *kind[E, R, D]) newBatch() *batch[E, R, D] {
	if b, ok := k.batches.Get().(*batch[E, R, D]); ok {
		return b
	}
	return new(batch[E, R, D])
}

// recycle keeps the memory of a batch for another one.
func (k *kind[E, R, D]) recycle(b *batch[E, R, D]) {
	clear(b.elements)
	clear(b.operations)
	b.elements, b.operations = b.elements[:0], b.operations[:0]
	b.combiner, b.bytes, b.lines, b.closed = nil, 0, 0, false
	b.memory.reset()
	k.batches.Put(b)
}

// add adds an operation.
func (b *batch[E, R, D]) add(k *kind[E, R, D], elements []E, bytes int, done D) {
	from := len(b.elements)
	b.elements = append(b.elements, elements...)
	if k.keep != nil {
		for i := from; i < len(b.elements); i++ {
			k.keep(&b.elements[i], &b.memory)
		}
	}
	b.operations = append(b.operations, operation[D]{len(elements), done})
	b.bytes += bytes
}

// An arena holds copies of bodies.
type arena struct{ used []byte }

// The least memory that an arena allocates, and the most that it keeps.
const (
	minArena = 4 << 10
	maxArena = 256 << 10
)

// clone returns a copy of body.
func (a *arena) clone(body []byte) []byte {
	if len(body) == 0 {
		return nil
	}
	if cap(a.used)-len(a.used) < len(body) { // bodies in the old memory stay where they are
		a.used = make([]byte, 0, max(minArena, min(2*cap(a.used), maxArena), len(body)))
	}
	from := len(a.used)
	a.used = append(a.used, body...)
	return a.used[from:len(a.used):len(a.used)]
}

// reset makes the memory free for other bodies.
func (a *arena) reset() {
	if cap(a.used) > maxArena {
		a.used = nil
	}
	a.used = a.used[:0]
}
