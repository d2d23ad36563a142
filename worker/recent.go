package worker

import (
	"sync"
	"sync/atomic"
)

// recent remembers values by message id, the latest so many.
type recent[V any] struct {
	count atomic.Int32 // len(values), to find out cheaply that there are none

	mu     sync.Mutex // guards the fields below
	values map[string]V
	order  []string // a ring of the ids, in the order in which they came
	next   int
	most   int
}

func newRecent[V any](most int) *recent[V] { return &recent[V]{most: max(1, most)} }

// put remembers a value and forgets the oldest if there are too many.
func (r *recent[V]) put(id string, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.count.Store(int32(len(r.values))) }()
	if r.values == nil {
		r.values = make(map[string]V)
	}
	_, known := r.values[id]
	r.values[id] = value
	switch {
	case known:
	case len(r.order) < r.most:
		r.order = append(r.order, id)
	default:
		delete(r.values, r.order[r.next])
		r.order[r.next] = id
		r.next = (r.next + 1) % r.most
	}
}

// get returns the value for an id.
func (r *recent[V]) get(id string) (value V, ok bool) {
	if r.count.Load() == 0 {
		return value, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	value, ok = r.values[id]
	return value, ok
}

// forget is called when a value is not needed any more. Its id stays in the ring
// until that comes round, as an id that is not known.
func (r *recent[V]) forget(id string) {
	if r.count.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.values, id)
	r.count.Store(int32(len(r.values)))
}
