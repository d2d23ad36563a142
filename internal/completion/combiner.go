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
// A combiner has no goroutine while it has no operations. Its callers bound how many wait.
type combiner[E, R, D any] struct {
	*kind[E, R, D]
	queue driver.Queue
	call  func(context.Context, []E) ([]R, error)

	mu    sync.Mutex      // guards the fields below
	first *batch[E, R, D] // the next call
	last  *batch[E, R, D] // operations join it while they fit
	calls int             // under way
}

// A kind of operations has elements E, results R by position, and completions D.
type kind[E, R, D any] struct {
	complete func(done D, r *Round, results []R, err error)
	// ordered reports whether, in a queue with this ordering, one call must end before the
	// next one begins.
	ordered func(driver.Ordering) bool
	// size returns the bytes of an element, and keep makes it independent of the caller's
	// memory. They are nil for elements that have no bodies.
	size func(*E) int
	keep func(*E, *arena)

	batches sync.Pool // of *batch[E, R, D], empty
}

// A batch holds the operations of one call.
type batch[E, R, D any] struct {
	next       *batch[E, R, D]
	elements   []E
	operations []operation[D]
	bytes      int
	memory     arena
}

type operation[D any] struct {
	elements int
	done     D
}

const (
	// maxCallBytes bounds the bodies and attributes in a call of several operations.
	maxCallBytes = 4 << 20
	// maxCalls bounds the calls of one kind that are under way for a queue. The second one
	// begins when a batch is full: calls that are not full cost more than they gain.
	maxCalls = 8
)

func (c *combiner[E, R, D]) init(q driver.Queue, k *kind[E, R, D], call func(context.Context, []E) ([]R, error)) {
	c.queue, c.kind, c.call = q, k, call
}

// start starts an operation. It does not block, and keeps no reference to elements.
func (c *combiner[E, R, D]) start(elements []E, done D) {
	bytes := 0
	if c.size != nil {
		for i := range elements {
			bytes += c.size(&elements[i])
		}
	}
	c.mu.Lock()
	parallel := 1
	if c.last == nil {
		c.first = c.newBatch()
		c.last = c.first
	} else {
		traits := c.queue.Traits()
		if len(c.last.elements)+len(elements) > traits.MaxBatch || c.last.bytes+bytes > maxCallBytes {
			c.last.next = c.newBatch()
			c.last = c.last.next
		}
		if c.first != c.last && !c.ordered(traits.Ordering) {
			parallel = maxCalls
		}
	}
	c.last.add(c.kind, elements, bytes, done)
	begin := c.calls < parallel
	if begin {
		c.calls++
	}
	c.mu.Unlock()
	if begin {
		go c.work()
	}
}

// work makes calls until no operation waits.
func (c *combiner[E, R, D]) work() {
	var r Round
	for b := c.take(); b != nil; b = c.take() {
		c.perform(&r, b)
		r.End()
	}
}

// take returns the next batch, or nil if there is none and the goroutine ends.
func (c *combiner[E, R, D]) take() *batch[E, R, D] {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.first
	if b == nil {
		c.calls--
		return nil
	}
	c.first, b.next = b.next, nil
	if c.first == nil {
		c.last = nil
	}
	return b
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
	b.elements, b.operations, b.bytes = b.elements[:0], b.operations[:0], 0
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
