package redisbox

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
	// perform makes the call for a batch and reports the result to each operation.
	perform func(ctx context.Context, sess *session, batch []operation)

	mu       sync.Mutex // guards the fields below
	queued   []operation
	elements int       // in queued
	calls    int       // under way
	sends    bool      // since no call was under way
	consumes bool      // likewise
	latest   time.Time // when the latest call began
	idle     []*session
}

// operation is a *settleOp, a *sendOp or a *receiveOp.
type operation interface {
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

// submit queues an operation for the next call. It does not block. Cancelling ctx
// does not stop an operation whose call has begun.
func (b *batcher) submit(ctx context.Context, op operation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	elements, _ := op.size()
	b.queued, b.elements = append(b.queued, op), b.elements+elements
	_, isSend := op.(*sendOp)
	b.sends, b.consumes = b.sends || isSend, b.consumes || !isSend
	if !b.startsCall() {
		return
	}
	b.calls++
	b.latest = time.Now()
	sess := &session{}
	if last := len(b.idle) - 1; last >= 0 {
		sess = b.idle[last]
		b.idle = b.idle[:last]
	}
	ctx = context.WithoutCancel(ctx)
	b.goroutines.start(func() { b.run(ctx, sess) })
}

// startsCall reports whether the queued operations start another call. The caller holds
// the mutex.
func (b *batcher) startsCall() bool {
	usual := 1
	if b.sends && b.consumes {
		usual = 2
	}
	return b.calls < usual || (b.calls < maxCalls && (b.elements >= extraCallSize || time.Since(b.latest) >= slowCall))
}

// withdraw removes an operation that is still queued, and reports whether it was.
func (b *batcher) withdraw(op operation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.queued {
		if other == op {
			elements, _ := op.size()
			b.queued, b.elements = append(b.queued[:i:i], b.queued[i+1:]...), b.elements-elements
			return true
		}
	}
	return false
}

// run performs batches until no operation is queued.
func (b *batcher) run(ctx context.Context, sess *session) {
	for batch := b.next(sess); batch != nil; batch = b.next(sess) {
		b.perform(ctx, sess, batch)
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
		b.mu.Lock()
		n = len(b.queued)
		b.mu.Unlock()
	}
}

// next returns the next batch, or nil if there is none and the goroutine ends.
func (b *batcher) next(sess *session) []operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) == 0 {
		b.queued = nil
		b.calls--
		b.sends, b.consumes = b.sends && b.calls > 0, b.consumes && b.calls > 0
		b.idle = append(b.idle, sess)
		return nil
	}
	elements, bytes, n := 0, 0, 0
	for _, op := range b.queued {
		opElements, opBytes := op.size()
		if n > 0 && (elements+opElements > maxElements || bytes+opBytes > maxBytes) {
			break
		}
		elements, bytes, n = elements+opElements, bytes+opBytes, n+1
	}
	batch := b.queued[:n:n]
	b.queued, b.elements = b.queued[n:], b.elements-elements
	if len(b.queued) == 0 {
		b.queued = make([]operation, 0, n) // the next batch is likely as large
	}
	b.latest = time.Now()
	return batch
}

// allCancelled reports whether the callers of all operations have gone.
func allCancelled(batch []operation) bool {
	for _, op := range batch {
		if op.context().Err() == nil {
			return false
		}
	}
	return true
}
