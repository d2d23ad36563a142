package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// DefaultVisibility is the visibility of a receive without WithVisibility, unless
// Traits.MaxVisibility is shorter.
const DefaultVisibility = 30 * time.Second

// A backend that returns no messages before the wait is over, or an undecodable message
// that is redelivered at once, must not make a receive spin: it pauses for idlePauseMin,
// doubling up to idlePauseMax.
const (
	idlePauseMin = 10 * time.Millisecond
	idlePauseMax = time.Second
)

// Receive leases up to WithMax ready messages, in order, for WithVisibility. It returns
// as soon as it has one, and never waits to fill a batch. While no message is ready it
// blocks for up to WithWait, in several calls of the backend if that is longer than
// Traits.MaxWait, and then returns no messages and no error.
//
// Messages whose body cannot be decoded go where Options.Poison says and are not
// returned; if there were no others, Receive continues. Cancelling ctx or closing the
// mailbox wakes it at once; it still returns messages that it has leased by then.
// Repeating it is safe. Codes: ErrFull when too many messages are in flight.
func (m *Mailbox[T]) Receive(ctx context.Context, options ...ReceiveOption) ([]*Message[T], error) {
	return m.receive(ctx, 0, 0, options)
}

// receive is Receive with a default and a minimum for the wait.
func (m *Mailbox[T]) receive(ctx context.Context, defaultWait, leastWait time.Duration, options []ReceiveOption) ([]*Message[T], error) {
	if err := m.ready(ctx, opReceive); err != nil {
		return nil, err
	}
	if m.sendOnly {
		return nil, m.fail(opReceive, ErrInvalid, "Codec", errNoDecode.Error())
	}
	traits := m.Queue().Traits()
	request := applyReceive(driver.ReceiveRequest{
		Max: 1, Visibility: min(DefaultVisibility, traits.MaxVisibility), Wait: defaultWait,
	}, options)
	wait := request.Wait
	if wait >= 0 { // Check refuses a negative one
		wait = max(wait, leastWait)
	}
	request.Wait = longestStep(wait, &traits)
	request, err := request.Check(&traits)
	if err != nil {
		return nil, m.located(err)
	}
	if wait == 0 {
		return m.receiveUntil(ctx, request, time.Time{}, &traits)
	}
	return m.receiveUntil(ctx, request, time.Now().Add(wait), &traits)
}

// longestStep returns how much of a wait one call of the backend can take.
func longestStep(wait time.Duration, traits *driver.Traits) time.Duration {
	if traits.MaxWait > 0 {
		return min(wait, traits.MaxWait)
	}
	return wait
}

// receiveUntil polls until it has a message to return or the deadline has passed. With
// the zero deadline it does not wait.
func (m *Mailbox[T]) receiveUntil(ctx context.Context, request driver.ReceiveRequest, deadline time.Time, traits *driver.Traits) ([]*Message[T], error) {
	idle := idlePauseMin
	for {
		asked := startIf(!deadline.IsZero())
		deliveries, err := m.poll(ctx, request)
		messages, poison := m.open(ctx, deliveries)
		if len(messages) > 0 {
			return messages, nil
		}
		// The in-flight limit does not end the wait: the next ack may make room.
		if err != nil && !errors.Is(err, ErrFull) {
			return nil, err
		}
		var remaining time.Duration
		if !deadline.IsZero() {
			remaining = max(0, time.Until(deadline))
		}
		cleared := poison.found && !poison.returns
		if remaining == 0 && !cleared {
			return nil, err
		}
		if early := time.Since(asked) < request.Wait; early && !cleared {
			if err := m.pause(ctx, min(idle, remaining)); err != nil {
				return nil, err
			}
			idle = min(2*idle, idlePauseMax)
			remaining = max(0, time.Until(deadline))
		}
		request.Wait = longestStep(remaining, traits)
	}
}

// poll makes one call of the backend.
func (m *Mailbox[T]) poll(ctx context.Context, request driver.ReceiveRequest) ([]driver.Delivery, error) {
	start := startIf(m.hooks.Polled != nil)
	queue := m.queue.Load()
	deliveries, err := (*queue).Receive(ctx, request)
	switch {
	case errors.Is(err, ErrNotFound):
		m.follow(ctx, queue)
	case errors.Is(err, ErrClosed) && m.queue.Load() != queue:
		err = nil // another receive has opened the queue again
	}
	if m.hooks.Polled != nil {
		m.hooks.Polled(ctx, PolledEvent{
			Queue: m.name, Request: request, Deliveries: len(deliveries),
			Duration: time.Since(start), Err: err,
		})
	}
	return deliveries, err
}

// open decodes deliveries into messages, and disposes of those that it cannot decode.
func (m *Mailbox[T]) open(ctx context.Context, deliveries []driver.Delivery) ([]*Message[T], poisonFound) {
	if len(deliveries) == 0 {
		return nil, poisonFound{}
	}
	receivedAt := startIf(m.hooks.Settled != nil)
	var messages []*Message[T]
	var poisoned []poisonedDelivery
	for i := range deliveries {
		delivery := &deliveries[i]
		if m.hooks.Received != nil {
			m.hooks.Received(ctx, m.name, delivery)
		}
		body, err := m.decode(&delivery.Message)
		if err != nil {
			poisoned = append(poisoned, poisonedDelivery{delivery: delivery, cause: err})
			continue
		}
		message := newMessage(&messages, len(deliveries))
		message.load(m, delivery, body, receivedAt)
	}
	if len(poisoned) == 0 {
		return messages, poisonFound{}
	}
	return messages, m.dispose(ctx, poisoned)
}

// newMessage appends a new message to messages, which will have at most n. A single
// message, the usual case, is one allocation together with its slice. Messages of a
// batch are allocated one by one, because a receiver that keeps one of them would
// otherwise keep the bodies of all.
func newMessage[T any](messages *[]*Message[T], n int) *Message[T] {
	if n == 1 {
		single := new(struct {
			message Message[T]
			slice   [1]*Message[T]
		})
		single.slice[0] = &single.message
		*messages = single.slice[:]
		return &single.message
	}
	if *messages == nil {
		*messages = make([]*Message[T], 0, n)
	}
	message := new(Message[T])
	*messages = append(*messages, message)
	return message
}
