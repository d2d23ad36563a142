package mailbox

import "sync"

// A pool lends out values of type T, which it makes zero when it has none.
type pool[T any] struct{ free sync.Pool }

func (p *pool[T]) get() *T {
	if value, ok := p.free.Get().(*T); ok {
		return value
	}
	return new(T)
}

func (p *pool[T]) put(value *T) { p.free.Put(value) }
