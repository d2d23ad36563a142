package worker

import (
	"sync"
	"sync/atomic"
)

// recent remembers values by message id, the latest so many.
type recent[V any] struct {
	count atomic.Int32 // len(values), to find out cheaply that there are none

	mu     sync.Mutex // guards the fields below
	values map[string]remembered[V]
	order  []string // a ring of the ids, in the order in which they came
	next   int
	most   int
}

// remembered is a value, and where in the ring its id is. An id that was forgotten
// and came again is in there twice.
type remembered[V any] struct {
	value V
	place int
}

func newRecent[V any](most int) *recent[V] { return &recent[V]{most: max(1, most)} }

// put remembers a value and forgets the oldest if there are too many.
func (r *recent[V]) put(id string, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.count.Store(int32(len(r.values))) }()
	if r.values == nil {
		r.values = make(map[string]remembered[V])
	}
	if known, ok := r.values[id]; ok {
		r.values[id] = remembered[V]{value, known.place}
		return
	}
	place := len(r.order)
	if place < r.most {
		r.order = append(r.order, id)
	} else {
		place = r.next
		if oldest := r.order[place]; r.values[oldest].place == place {
			delete(r.values, oldest)
		}
		r.order[place] = id
		r.next = (place + 1) % r.most
	}
	r.values[id] = remembered[V]{value, place}
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
