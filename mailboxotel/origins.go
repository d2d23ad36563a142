package mailboxotel

import (
	"container/list"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// origins maps the messages in flight to the spans that sent them: the caller that settles
// a message may know only its id. A message that is never settled is forgotten after most
// later ones.
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
	o.dropLocked(key)
	o.known[key] = o.order.PushBack(origin{key, span})
	if o.order.Len() > o.most {
		o.dropLocked(o.order.Front().Value.(origin).key)
	}
}

// of returns the span that sent a message, or an invalid one if it is unknown.
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
	o.dropLocked(originKey{queue, messageID})
}

// dropLocked removes a message if it is known.
func (o *origins) dropLocked(key originKey) {
	if element := o.known[key]; element != nil {
		o.order.Remove(element)
		delete(o.known, key)
	}
}
