package mailboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// An Injection is a message with a past.
type Injection struct {
	driver.Outgoing
	// Deliveries is the delivery count that its next delivery has; 0 means 1.
	// Later ones count on from there.
	Deliveries int
	// LastError is what its past nack gave as the cause.
	LastError string
	// FirstReceivedAt is when it was delivered first. Zero means that the
	// backend's word counts.
	FirstReceivedAt time.Time
}

// Inject sends a message to queue and gives it a past, which is added to what
// the backend says whenever the message is delivered or looked at. It takes its
// place at the tail like any other, and settling, expiry and dead letters work
// as usual. Only the backend itself knows nothing of that past: a limit on
// deliveries configured there counts the real ones. Redriving a message ends
// its past. The faults do not concern Inject itself. Codes: those of Send.
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

// pasts are what injected messages have lived through.
type pasts struct {
	// mu guards the field below. It is held while a message is injected, so
	// that no receiver sees the message without its past.
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

// addTo adds its past to what the backend says about a message.
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

// addToAll is addTo for deliveries, in a slice that is not the backend's.
func (p *pasts) addToAll(queue string, deliveries []driver.Delivery) []driver.Delivery {
	deliveries = slices.Clone(deliveries)
	for i := range deliveries {
		p.addTo(queue, &deliveries[i].Message)
	}
	return deliveries
}

// end forgets the past of a message.
func (p *pasts) end(queue, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.injected, messageKey{queue, id})
}
