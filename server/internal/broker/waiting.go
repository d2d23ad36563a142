package broker

import (
	"context"
	"sync"
	"time"
)

// retryWaits is when to try again for room for a receive that waits: others come
// back within seconds, as long polls do.
const retryWaits = time.Second

// A waitTable knows the receives that wait, to end them when the daemon stops.
type waitTable struct {
	mu    sync.Mutex
	next  uint64
	ends  map[uint64]context.CancelFunc
	ended bool
}

func (w *waitTable) init() { w.ends = make(map[uint64]context.CancelFunc) }

// enter returns a context that ends when ctx does, or with everything else. The
// caller leaves with the number it gets.
func (w *waitTable) enter(ctx context.Context) (context.Context, uint64) {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		cancel()
	}
	w.next++
	w.ends[w.next] = cancel
	return ctx, w.next
}

func (w *waitTable) leave(number uint64) {
	w.mu.Lock()
	cancel := w.ends[number]
	delete(w.ends, number)
	w.mu.Unlock()
	cancel()
}

// endAll wakes everybody, and whoever comes later.
func (w *waitTable) endAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, cancel := range w.ends {
		cancel()
	}
}
