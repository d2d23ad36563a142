package shard

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A batcher groups operations on a shard into calls. Operations submitted while
// calls are under way go into the next one: a single caller waits for one round trip,
// and many callers share the cost of a call. No operation waits for others to arrive.
//
// A batcher has no goroutine while it has no operations.
type batcher struct {
	goroutines *goroutines
	// Perform makes the call for a batch and reports the result to each operation.
	Perform func(ctx context.Context, sess *Session, batch []Operation)

	Mu       sync.Mutex // guards the fields below
	Queued   []Operation
	elements int       // in queued
	Calls    int       // under way
	sends    bool      // since no call was under way
	consumes bool      // likewise
	Latest   time.Time // when the latest call began
	idle     []*Session
}

// Operation is a *SettleOp, a *SendOp or a *ReceiveOp.
type Operation interface {
	// size returns the number of elements and bytes.
	size() (elements, bytes int)
	context() context.Context
}

// Limits of one call, and of concurrent calls.
const (
	maxElements = 1024
	maxBytes    = 4 << 20
	// Where a process sends and consumes, two calls are under way: while the server performs
	// one, the callers of the other act on its answer. Further calls start only if enough
	// elements are queued, or if the latest call is slow because it is large or the server
	// is far away. Smaller calls would cost more than they gain.
	maxCalls      = 4
	extraCallSize = 128
	slowCall      = time.Millisecond
)

// Submit queues an operation for the next call. It does not block. Cancelling ctx
// does not stop an operation whose call has begun.
func (b *batcher) Submit(ctx context.Context, op Operation) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	elements, _ := op.size()
	b.Queued, b.elements = append(b.Queued, op), b.elements+elements
	_, isSend := op.(*SendOp)
	b.sends, b.consumes = b.sends || isSend, b.consumes || !isSend
	if !b.startsCall() {
		return
	}
	b.Calls++
	b.Latest = time.Now()
	sess := &Session{}
	if last := len(b.idle) - 1; last >= 0 {
		sess = b.idle[last]
		b.idle = b.idle[:last]
	}
	ctx = context.WithoutCancel(ctx)
	b.goroutines.Start(func() { b.run(ctx, sess) })
}

// startsCall reports whether the queued operations start another call. The caller holds
// the mutex.
func (b *batcher) startsCall() bool {
	usual := 1
	if b.sends && b.consumes {
		usual = 2
	}
	return b.Calls < usual || (b.Calls < maxCalls && (b.elements >= extraCallSize || time.Since(b.Latest) >= slowCall))
}

// Withdraw removes an operation that is still queued, and reports whether it was.
func (b *batcher) Withdraw(op Operation) bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for i, other := range b.Queued {
		if other == op {
			elements, _ := op.size()
			b.Queued, b.elements = append(b.Queued[:i:i], b.Queued[i+1:]...), b.elements-elements
			return true
		}
	}
	return false
}

// run performs batches until no operation is queued.
func (b *batcher) run(ctx context.Context, sess *Session) {
	for batch := b.next(sess); batch != nil; batch = b.next(sess) {
		b.Perform(ctx, sess, batch)
		b.yield()
	}
}

// yield lets callers that were just answered submit their next operations, for as
// long as some do. It yields the processor; it does not sleep.
func (b *batcher) yield() {
	const rounds = 8
	for before, n := -1, 0; before < n; {
		before = n
		for range rounds {
			runtime.Gosched()
		}
		b.Mu.Lock()
		n = len(b.Queued)
		b.Mu.Unlock()
	}
}

// next returns the next batch, or nil if there is none and the goroutine ends.
func (b *batcher) next(sess *Session) []Operation {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if len(b.Queued) == 0 {
		b.Queued = nil
		b.Calls--
		b.sends, b.consumes = b.sends && b.Calls > 0, b.consumes && b.Calls > 0
		b.idle = append(b.idle, sess)
		return nil
	}
	elements, bytes, n := 0, 0, 0
	for _, op := range b.Queued {
		opElements, opBytes := op.size()
		if n > 0 && (elements+opElements > maxElements || bytes+opBytes > maxBytes) {
			break
		}
		elements, bytes, n = elements+opElements, bytes+opBytes, n+1
	}
	batch := b.Queued[:n:n]
	b.Queued, b.elements = b.Queued[n:], b.elements-elements
	if len(b.Queued) == 0 {
		b.Queued = make([]Operation, 0, n) // the next batch is likely as large
	}
	b.Latest = time.Now()
	return batch
}

// allCancelled reports whether the callers of all operations have gone.
func allCancelled(batch []Operation) bool {
	for _, op := range batch {
		if op.context().Err() == nil {
			return false
		}
	}
	return true
}
