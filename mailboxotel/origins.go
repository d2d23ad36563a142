package mailboxotel

import (
	"container/list"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// origins remembers which spans the messages came from that are held now. Who settles a
// message may have nothing but its id. A message that is dropped without being settled is
// forgotten when too many others have come since.
type origins struct {
	most int

	mu    sync.Mutex // guards the fields below
	known map[originKey]*list.Element
	order *list.List // of origin, the oldest first
}

type originKey struct{ queue, messageID string }

type origin struct {
	key  originKey
	span trace.SpanContext
}

func newOrigins(most int) *origins {
	return &origins{most: most, known: make(map[originKey]*list.Element), order: list.New()}
}

func (o *origins) remember(queue, messageID string, span trace.SpanContext) {
	key := originKey{queue, messageID}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(key)
	o.known[key] = o.order.PushBack(origin{key, span})
	if o.order.Len() > o.most {
		o.drop(o.order.Front().Value.(origin).key)
	}
}

// of returns the span that a message came from, or an invalid one.
func (o *origins) of(queue, messageID string) trace.SpanContext {
	o.mu.Lock()
	defer o.mu.Unlock()
	if element := o.known[originKey{queue, messageID}]; element != nil {
		return element.Value.(origin).span
	}
	return trace.SpanContext{}
}

func (o *origins) forget(queue, messageID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(originKey{queue, messageID})
}

// drop removes an entry, if there is one. The lock is held.
func (o *origins) drop(key originKey) {
	if element := o.known[key]; element != nil {
		o.order.Remove(element)
		delete(o.known, key)
	}
}
