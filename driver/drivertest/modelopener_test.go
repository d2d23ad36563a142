package drivertest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
)

// modelOpener is a backend made of models on the real clock, or that of a bubble. The tests of
// this package use it; spoil, if set, makes it a faulty one.
type modelOpener struct {
	start time.Time
	spoil func(*queuemodel.Queue) driver.Queue

	mu     sync.Mutex
	queues map[string]*queuemodel.Queue
}

var _ driver.Admin = (*modelOpener)(nil)

func newModelBox(spoil func(*queuemodel.Queue) driver.Queue) *modelOpener {
	return &modelOpener{start: time.Now(), spoil: spoil, queues: make(map[string]*queuemodel.Queue)}
}

// modelBackend is a Backend of model openers.
func modelBackend(spoil func(*queuemodel.Queue) driver.Queue) Backend {
	return Backend{
		Virtual: true,
		Open:    func(testing.TB) driver.Opener { return newModelBox(spoil) },
	}
}

func (b *modelOpener) queue(name string) *queuemodel.Queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[name]; q != nil {
		return q
	}
	q := &queuemodel.Queue{
		Model: queuemodel.New(name, queuemodel.AllTraits, driver.Config{}, b.start),
		Clock: func() time.Duration { return time.Since(b.start) },
		Sleep: pauseBriefly,
		Find:  b.find,
	}
	// Ids and receipts differ from those of other queues.
	q.Model.Sends, q.Model.Nonce = 1000*len(b.queues), 1000*uint64(len(b.queues))
	b.queues[name] = q
	return q
}

func (b *modelOpener) find(name string) *queuemodel.Queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queues[name]
}

// pauseBriefly polls: a model does not wake receivers.
func pauseBriefly(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(d, 100*time.Millisecond)):
		return nil
	}
}

func (b *modelOpener) OpenQueue(_ context.Context, name string) (driver.Queue, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if b.spoil != nil {
		return b.spoil(b.queue(name)), nil
	}
	return b.queue(name), nil
}

func (b *modelOpener) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	q := b.queue(name)
	return q.Configure(ctx, config.Resolve(&q.Model.Config, driver.Config{}).Stored())
}

func (b *modelOpener) QueueConfig(_ context.Context, name string) (driver.Config, error) {
	return b.queue(name).Model.Config.Effective(), nil
}

func (b *modelOpener) Queues(context.Context) iter.Seq2[string, error] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return queuemodel.WithoutErrors(slices.Sorted(maps.Keys(b.queues)))
}

func (b *modelOpener) DeleteQueue(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.queues, name)
	return nil
}
