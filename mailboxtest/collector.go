package mailboxtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// A Collector is a backend that remembers every message that is sent through it, in
// order. Make one with NewCollector. It is safe for concurrent use.
type Collector struct {
	backend driver.Opener

	mu        sync.Mutex // guards the fields below
	collected []Collected
	grown     chan struct{} // closed, and replaced, when collected grows
}

// Collected is a message that was sent, with copies of its body and attributes.
type Collected struct {
	// Queue is the name of the queue, and ID the id that Send returned.
	Queue string
	ID    string
	// Duplicate says that the backend recognised a repeat of an earlier send.
	Duplicate bool
	driver.Outgoing
}

var _ driver.Opener = (*Collector)(nil)

// NewCollector returns a collector that forwards to backend. Nil means Null: messages
// are collected and never delivered. With membox.New(nil) they are delivered as well.
func NewCollector(backend driver.Opener) *Collector {
	if backend == nil {
		backend = Null{}
	}
	return &Collector{backend: backend, grown: make(chan struct{})}
}

// OpenQueue opens a queue of the backend. It blocks, and fails, as that does.
func (c *Collector) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	queue, err := c.backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &collectingQueue{Queue: queue, name: name, collector: c}, nil
}

// Sent returns the messages that were sent to the named queues, or to any if none is
// named, oldest first. Failed sends are not included.
func (c *Collector) Sent(queues ...string) []Collected {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sentLocked(queues)
}

func (c *Collector) sentLocked(queues []string) []Collected {
	var sent []Collected
	for _, message := range c.collected {
		if len(queues) == 0 || slices.Contains(queues, message.Queue) {
			sent = append(sent, message)
		}
	}
	return sent
}

// Wait blocks until at least n messages were sent to the named queues, or to
// any if none is named, and returns them as Sent does. When ctx ends first it
// returns the messages so far, and the context's error.
func (c *Collector) Wait(ctx context.Context, n int, queues ...string) ([]Collected, error) {
	for {
		c.mu.Lock()
		sent, grown := c.sentLocked(queues), c.grown
		c.mu.Unlock()
		if len(sent) >= n {
			return sent, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return sent, ctx.Err()
		}
	}
}

// Reset forgets the messages collected so far.
func (c *Collector) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collected = nil
}

// Bodies decodes the bodies of messages. The error names the first that cannot
// be decoded.
func Bodies[T any](codec mailbox.Codec[T], messages []Collected) ([]T, error) {
	bodies := make([]T, 0, len(messages))
	for i, message := range messages {
		body, err := codec.Decode(message.Body)
		if err != nil {
			return bodies, fmt.Errorf("message %d, sent to %s: %w", i, message.Queue, err)
		}
		bodies = append(bodies, body)
	}
	return bodies, nil
}

// collectingQueue forwards to the backend and adds sends to the collector.
type collectingQueue struct {
	driver.Queue
	name      string
	collector *Collector
}

func (q *collectingQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	q.collector.collect(q.name, msgs, sent, err)
	return sent, err
}

func (c *Collector) collect(queue string, msgs []driver.Outgoing, sent []driver.Sent, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range min(len(msgs), len(sent)) {
		if mailbox.ErrorAt(err, i) != nil {
			continue
		}
		message := Collected{Queue: queue, ID: sent[i].ID, Duplicate: sent[i].Duplicate, Outgoing: msgs[i]}
		message.Body = bytes.Clone(message.Body)
		message.Attributes = maps.Clone(message.Attributes)
		c.collected = append(c.collected, message)
	}
	close(c.grown)
	c.grown = make(chan struct{})
}
