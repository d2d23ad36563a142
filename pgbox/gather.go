package pgbox

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// A gatherer makes goroutines share calls. Operations that are submitted while a call is under
// way go into the next one: a single caller waits for one call, and many callers share its
// cost. No operation waits for others to come.
type gatherer[O any] struct {
	// start runs a function in a goroutine that the backend waits for.
	start func(func())
	// size returns the elements and bytes of an operation.
	size func(O) (elements, bytes int)
	// perform makes the call for a batch, and reports to each operation.
	perform func(ctx context.Context, batch []O)

	mu      sync.Mutex // guards the fields below
	queued  []O
	running bool
}

// The limits of one call.
const (
	maxCallElements = 1024
	maxCallBytes    = 4 << 20
)

// submit queues an operation for the next call. It does not block. Cancelling ctx does not
// stop a call.
func (g *gatherer[O]) submit(ctx context.Context, op O) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = append(g.queued, op)
	if !g.running {
		g.running = true
		ctx = context.WithoutCancel(ctx)
		g.start(func() { g.run(ctx) })
	}
}

// run makes calls until no operation is queued.
func (g *gatherer[O]) run(ctx context.Context) {
	for {
		for range 4 { // callers that were just answered, by this call or another, may submit their next operations
			runtime.Gosched()
		}
		batch := g.next()
		if batch == nil {
			return
		}
		g.perform(ctx, batch)
	}
}

// next returns the next batch, or nil if there is none.
func (g *gatherer[O]) next() []O {
	g.mu.Lock()
	defer g.mu.Unlock()
	elements, bytes, n := 0, 0, 0
	for _, op := range g.queued {
		more, size := g.size(op)
		if n > 0 && (elements+more > maxCallElements || bytes+size > maxCallBytes) {
			break
		}
		elements, bytes, n = elements+more, bytes+size, n+1
	}
	if n == 0 {
		g.running = false
		return nil
	}
	batch := g.queued[:n:n]
	g.queued = slices.Clone(g.queued[n:])
	return batch
}

// withdraw removes an operation that is still queued, and reports whether it was.
func (g *gatherer[O]) withdraw(is func(O) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.queued, is)
	if i < 0 {
		return false
	}
	g.queued = slices.Delete(slices.Clone(g.queued), i, i+1)
	return true
}
