package share

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Gate lets owners wait for units of a pool, for what is used for a moment and
// given back: processor time, and memory for a request. Tenants take turns, and the
// owners of a tenant are served in the order in which they came. Make one with
// NewGate.
type Gate struct {
	pool     *Pool
	patience time.Duration

	mu sync.Mutex // guards the fields below; the pool is locked after it
	// queues are the tenants that wait, in the order of their turns.
	queues []*line
	lines  map[Key]*line
}

// A line is what waits of one tenant.
type line struct {
	key     Key
	waiters []*waiter
	// waking: one was let in and does not run yet. The next is let in by it, so that
	// a crowd that is let in has one goroutine at a time in the scheduler's queue.
	waking bool
}

type waiter struct {
	line *line
	path Path
	n    int64
	// admitted is closed when the units were taken.
	admitted chan struct{}
	left     bool // it does not wait any more; guarded by Gate.mu
}

// NewGate returns a gate to a pool, which is taken from and given to by the gate
// alone. An owner waits for no longer than patience.
func NewGate(pool *Pool, patience time.Duration) *Gate {
	return &Gate{pool: pool, patience: patience, lines: make(map[Key]*line)}
}

// Stats returns the figures of the pool.
func (g *Gate) Stats() Stats { return g.pool.Stats() }

// Enter takes n units, and waits for them if the owner's share is used up. It blocks
// until then, until ctx ends, whose error it returns, or until the gate's patience
// ends: ErrFull. Who entered leaves.
func (g *Gate) Enter(ctx context.Context, path Path, n int64) error {
	g.mu.Lock()
	if g.lines[path[0]] == nil && g.pool.try(path, n) {
		g.mu.Unlock()
		return nil
	}
	w := &waiter{path: append(Path(nil), path...), n: n, admitted: make(chan struct{})}
	g.joinLocked(w)
	g.mu.Unlock()
	timer := time.NewTimer(g.patience)
	defer timer.Stop()
	var err error
	select {
	case <-w.admitted:
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.admitted: // if only at the last moment
		w.line.waking = false
		g.admitLocked()
		return nil
	default:
	}
	w.left = true
	g.admitLocked() // it may have been in the way of others
	if err != nil {
		return err
	}
	refusal := g.pool.Take(path, n)
	if refusal == nil {
		return nil
	}
	return refusal
}

// TryEnter is Enter for owners that do not wait: it reports whether the units were taken.
func (g *Gate) TryEnter(path Path, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines[path[0]] == nil && g.pool.try(path, n)
}

// EnterUpTo takes as many units as the owner may have, most at most and least at
// least. It waits like Enter, for the least.
func (g *Gate) EnterUpTo(ctx context.Context, path Path, least, most int64) (int64, error) {
	if err := g.Enter(ctx, path, least); err != nil {
		return 0, err
	}
	if most <= least {
		return least, nil
	}
	more, err := g.pool.TakeUpTo(path, most-least, 1)
	if err != nil && !errors.Is(err, driver.ErrFull) {
		return least, err
	}
	return least + more, nil
}

// Leave gives units back.
func (g *Gate) Leave(path Path, n int64) {
	g.pool.Give(path, n)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queues) > 0 {
		g.admitLocked()
	}
}

func (g *Gate) joinLocked(w *waiter) {
	l := g.lines[w.path[0]]
	if l == nil {
		l = &line{key: w.path[0]}
		g.lines[l.key] = l
		g.queues = append(g.queues, l)
	}
	w.line = l
	l.waiters = append(l.waiters, w)
	g.admitLocked() // units may have come back meanwhile
}

// admitLocked lets in who can be let in: the first of each tenant in turn.
func (g *Gate) admitLocked() {
	for refused := 0; len(g.queues) > 0 && refused < len(g.queues); {
		l := g.queues[0]
		g.queues = g.queues[1:]
		for len(l.waiters) > 0 && l.waiters[0].left {
			l.waiters = l.waiters[1:]
		}
		if len(l.waiters) == 0 {
			delete(g.lines, l.key)
			continue
		}
		g.queues = append(g.queues, l)
		w := l.waiters[0]
		if l.waking || !g.pool.try(w.path, w.n) {
			refused++
			continue
		}
		refused = 0
		l.waiters, l.waking = l.waiters[1:], true
		close(w.admitted)
	}
}

// Room returns how many units an owner could take now.
func (g *Gate) Room(path Path) int64 {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	room, _ := g.pool.roomLocked(path)
	return room
}

// Contested reports whether other owners than this child of the root are active.
func (g *Gate) Contested(key Key) bool {
	p := g.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	return p.root.contested(key, p.root.child(key, now), now)
}

// Adjust counts more units for an owner that has entered, whatever its share is, or
// gives some back.
func (g *Gate) Adjust(path Path, by int64) {
	switch {
	case by > 0:
		g.pool.Charge(path, by)
	case by < 0:
		g.Leave(path, -by)
	}
}
