package guard

import (
	"net/http"
	"sync"
	"time"
)

// A Drain keeps requests that are still arriving from delaying the end of a server.
// Make one with NewDrain. It is safe for concurrent use.
type Drain struct {
	grace time.Duration
	begun chan struct{}

	mu       sync.Mutex // guards the fields below, and deadlines while requests arrive
	arriving map[*http.ResponseController]struct{}
	began    bool
}

// NewDrain returns a drain that has not begun. Requests that are arriving when it begins
// have grace to complete.
func NewDrain(grace time.Duration) *Drain {
	return &Drain{grace: grace, begun: make(chan struct{}), arriving: make(map[*http.ResponseController]struct{})}
}

// Begin begins the drain. It does not block, and repeating it is safe.
func (d *Drain) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began {
		return
	}
	d.began = true
	close(d.begun)
	for control := range d.arriving {
		_ = control.SetReadDeadline(time.Now().Add(d.grace))
	}
}

// Begun is closed when the drain begins.
func (d *Drain) Begun() <-chan struct{} { return d.begun }

// Arriving registers a request, whose reading the drain cuts off. The caller calls
// arrived when it has read the request, and before its handler returns; after that the
// drain does not change the read deadline.
func (d *Drain) Arriving(control *http.ResponseController) (arrived func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arriving[control] = struct{}{}
	if d.began {
		_ = control.SetReadDeadline(time.Now().Add(d.grace))
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.arriving, control)
	}
}
