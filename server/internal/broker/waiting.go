package broker

import (
	"context"
	"sync"
)

// A waitingRoom knows the receives that wait, to end them when the daemon stops.
type waitingRoom struct {
	mu    sync.Mutex
	next  uint64
	ends  map[uint64]context.CancelFunc
	ended bool
}

func (w *waitingRoom) init() { w.ends = make(map[uint64]context.CancelFunc) }

// enter returns a context that ends when ctx does, or with everything else. The
// caller leaves with the number it gets.
func (w *waitingRoom) enter(ctx context.Context) (context.Context, uint64) {
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

func (w *waitingRoom) leave(number uint64) {
	w.mu.Lock()
	cancel := w.ends[number]
	delete(w.ends, number)
	w.mu.Unlock()
	cancel()
}

func (w *waitingRoom) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ends)
}

// endAll wakes everybody, and whoever comes later.
func (w *waitingRoom) endAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, cancel := range w.ends {
		cancel()
	}
}
