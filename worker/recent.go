package worker

import (
	"sync"
	"sync/atomic"
)

// recent remembers the latest values by message id.
type recent[V any] struct {
	count atomic.Int32 // len(values), for a cheap check that there are none

	mu     sync.Mutex // guards the fields below
	values map[string]remembered[V]
	order  []string // a ring of the ids, in the order in which they came
	next   int
	most   int
}

// A remembered is a value and the index of its id in the ring. An id that was
// forgotten and put again is in the ring twice.
type remembered[V any] struct {
	value V
	index int
}

func newRecent[V any](most int) *recent[V] { return &recent[V]{most: max(1, most)} }

// put remembers a value, and forgets the oldest if there are too many.
func (r *recent[V]) put(id string, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.count.Store(int32(len(r.values))) }()
	if r.values == nil {
		r.values = make(map[string]remembered[V])
	}
	if known, ok := r.values[id]; ok {
		r.values[id] = remembered[V]{value, known.index}
		return
	}
	index := len(r.order)
	if index < r.most {
		r.order = append(r.order, id)
	} else {
		index = r.next
		if oldest := r.order[index]; r.values[oldest].index == index {
			delete(r.values, oldest)
		}
		r.order[index] = id
		r.next = (index + 1) % r.most
	}
	r.values[id] = remembered[V]{value, index}
}

// get returns the value for an id.
func (r *recent[V]) get(id string) (value V, ok bool) {
	if r.count.Load() == 0 {
		return value, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.values[id]
	return found.value, ok
}

// forget removes a value. Its id stays in the ring until it is overwritten.
func (r *recent[V]) forget(id string) {
	if r.count.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.values, id)
	r.count.Store(int32(len(r.values)))
}
