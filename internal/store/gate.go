package store

import (
	"sync"
	"sync/atomic"
)

// A gate counts the running calls, so that Close can wait for them, and no call reaches a
// closed engine.
type gate struct {
	calls   atomic.Int64 // plus gateShut once shut
	once    sync.Once
	drained chan struct{}
}

const gateShut = 1 << 62

func newGate() *gate { return &gate{drained: make(chan struct{})} }

// enter reports whether the gate is open; if so, leave must follow.
func (g *gate) enter() bool {
	if g.calls.Add(1) > gateShut {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.calls.Add(-1) == gateShut {
		g.once.Do(func() { close(g.drained) })
	}
}

func (g *gate) isShut() bool { return g.calls.Load() >= gateShut }

// shut closes the gate and waits until no call is running. It must be called once.
func (g *gate) shut() {
	if g.calls.Add(gateShut) == gateShut {
		g.once.Do(func() { close(g.drained) })
	}
	<-g.drained
}
