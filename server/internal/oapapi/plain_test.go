package oapapi_test

import (
	"context"
	"iter"
	"net"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// plain is a Caller that goes to the backend without a broker between, to see
// what the road alone costs.
type plain struct {
	*membox.Backend
	mu     sync.RWMutex
	queues map[string]driver.Queue
}

func plainly(backend *membox.Backend) oapapi.Authenticate {
	p := &plain{Backend: backend, queues: make(map[string]driver.Queue)}
	return func(context.Context, []byte, net.Conn) (oapapi.Caller, error) { return p, nil }
}

func (p *plain) queue(topic string) driver.Queue {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.queues[topic]
}

func (p *plain) Open(ctx context.Context, topic string) (driver.Traits, error) {
	q, err := p.OpenQueue(ctx, topic)
	if err != nil {
		return driver.Traits{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[topic] = q
	return q.Traits(), nil
}

func (p *plain) Send(ctx context.Context, topic string, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return p.queue(topic).Send(ctx, msgs)
}

// Receive makes receipts into texts, which they are on the wire.
func (p *plain) Receive(ctx context.Context, topic string, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := p.queue(topic).Receive(ctx, req)
	for i := range got {
		got[i].Receipt = driver.Receipt{Handle: got[i].Receipt.String()}
	}
	return got, err
}

func (p *plain) Ack(ctx context.Context, topic string, receipts []driver.Receipt) error {
	parsed := make([]driver.Receipt, len(receipts))
	for i, r := range receipts {
		parsed[i], _ = driver.ParseReceipt(r.Handle)
	}
	return p.queue(topic).Ack(ctx, parsed)
}

func (p *plain) Nack(ctx context.Context, topic string, nacks []driver.Nack) error {
	return p.queue(topic).Nack(ctx, nacks)
}

func (p *plain) Extend(ctx context.Context, topic string, extensions []driver.Extension) ([]time.Duration, error) {
	return p.queue(topic).Extend(ctx, extensions)
}

func (p *plain) Purge(ctx context.Context, topic string) (int, error) {
	return p.queue(topic).Purge(ctx)
}

func (p *plain) Stats(ctx context.Context, topic string) (driver.Stats, error) {
	return p.queue(topic).Stats(ctx)
}

func (p *plain) Peek(ctx context.Context, topic string, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return p.queue(topic).Peek(ctx, query)
}

func (p *plain) DeadLetter(ctx context.Context, topic string, burials []driver.DeadLetterRequest) error {
	return p.queue(topic).DeadLetter(ctx, burials)
}

func (p *plain) DeadLetters(ctx context.Context, topic string) iter.Seq2[driver.DeadLetter, error] {
	return p.queue(topic).DeadLetters(ctx)
}

func (p *plain) Redrive(ctx context.Context, topic string, ids []string, limit int) (int, error) {
	return p.queue(topic).Redrive(ctx, ids, limit)
}

func (p *plain) Discard(ctx context.Context, topic string, ids []string) (int, error) {
	return p.queue(topic).Discard(ctx, ids)
}

func (p *plain) PurgeDead(ctx context.Context, topic string) (int, error) {
	return p.queue(topic).PurgeDead(ctx)
}
