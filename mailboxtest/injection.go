package mailboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An Injection is a message with earlier deliveries.
type Injection struct {
	driver.Outgoing
	// Deliveries is the delivery count of its next delivery; 0 means 1. Later ones
	// count on from it.
	Deliveries int
	// LastError is the cause of its earlier nack.
	LastError string
	// FirstReceivedAt is when it was delivered first. Zero means the value of the
	// backend.
	FirstReceivedAt time.Time
}

// Inject sends a message with earlier deliveries to queue. They are added to the
// backend's values whenever the message is delivered or peeked. The message goes to the
// tail like any other, and settling, expiry and dead letters work as usual. The backend
// does not know about the earlier deliveries: its own delivery limit counts the real
// ones. A redrive removes them. Faults do not apply to Inject. Codes: those of Send.
func (f *Faults) Inject(ctx context.Context, queue string, message Injection) (id string, err error) {
	if message.Deliveries < 0 {
		return "", &driver.Error{
			Code: driver.ErrInvalid, Op: "inject", Queue: queue, Field: "Deliveries",
			Detail: fmt.Sprintf("%d is negative", message.Deliveries),
		}
	}
	f.pasts.mu.Lock()
	defer f.pasts.mu.Unlock()
	err = f.behind(ctx, queue, func(q driver.Queue) error {
		sent, err := q.Send(ctx, []driver.Outgoing{message.Outgoing})
		if err != nil {
			return driver.At(err, 0)
		}
		id = sent[0].ID
		f.pasts.addLocked(queue, id, message)
		return nil
	})
	return id, err
}

// pasts has the earlier deliveries of injected messages.
type pasts struct {
	// mu guards the field below. It is held during Inject, so that no receiver gets
	// the message without its past.
	mu       sync.Mutex
	injected map[messageKey]Injection
}

type messageKey struct{ queue, id string }

func (p *pasts) addLocked(queue, id string, message Injection) {
	if p.injected == nil {
		p.injected = make(map[messageKey]Injection)
	}
	p.injected[messageKey{queue, id}] = message
}

// addTo adds the earlier deliveries to the backend's values of a message.
func (p *pasts) addTo(queue string, message *driver.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	past, ok := p.injected[messageKey{queue, message.ID}]
	if !ok {
		return
	}
	message.Deliveries += max(past.Deliveries-1, 0)
	if message.LastError == "" {
		message.LastError = past.LastError
	}
	if !past.FirstReceivedAt.IsZero() {
		message.FirstReceivedAt = past.FirstReceivedAt
	}
}

// addToAll adds the earlier deliveries to all of deliveries, in a new slice.
func (p *pasts) addToAll(queue string, deliveries []driver.Delivery) []driver.Delivery {
	deliveries = slices.Clone(deliveries)
	for i := range deliveries {
		p.addTo(queue, &deliveries[i].Message)
	}
	return deliveries
}

// end removes the earlier deliveries of a message.
func (p *pasts) end(queue, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.injected, messageKey{queue, id})
}
