package oapapi

import (
	"sync"
	"sync/atomic"
)

// crew does short pieces of work on goroutines that it keeps: a new one begins
// with a small stack, which the broker and a backend outgrow several times, and
// that costs as much as the work.
type crew struct {
	jobs   chan func()
	ended  chan struct{}
	end    func() // sends those home who wait for work; may be called again
	parked atomic.Int32
}

// maxParked bounds the goroutines that wait for work.
const maxParked = 64

func newCrew() *crew {
	c := &crew{jobs: make(chan func()), ended: make(chan struct{})}
	c.end = sync.OnceFunc(func() { close(c.ended) })
	return c
}

// do has f done at once, by somebody who waits for work or by somebody new.
func (c *crew) do(f func()) {
	select {
	case c.jobs <- f:
	default:
		go c.work(f)
	}
}

func (c *crew) work(f func()) {
	for {
		f()
		if c.parked.Add(1) > maxParked {
			c.parked.Add(-1)
			return
		}
		select {
		case f = <-c.jobs:
			c.parked.Add(-1)
		case <-c.ended:
			return
		}
	}
}
