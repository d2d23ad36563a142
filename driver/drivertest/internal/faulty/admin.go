package faulty

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var adminFaults = []Saboteur{
	{
		Name: "forgets-the-configuration", Breaks: "SVC-1",
		What: "The configuration that is read back is empty.",
		Wrap: perOpener(func(b *wrapper) backend { return forgetsConfig{b} }),
	},
	{
		Name: "purges-when-configured", Breaks: "SVC-1",
		What: "Configuring a queue purges it.",
		Wrap: perOpener(func(b *wrapper) backend { return purgesWhenConfigured{b} }),
	},
	{
		Name: "purges-the-dead-when-configured", Breaks: "SVC-1",
		What: "Configuring a queue removes its dead letters.",
		Wrap: perOpener(func(b *wrapper) backend { return purgesDeadWhenConfigured{b} }),
	},
	{
		Name: "keeps-old-traits-in-open-handles", Breaks: "SVC-1",
		What: "A handle answers with the traits that held when it was opened.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return frozenTraits{q, q.Traits()} }),
	},
	{
		Name: "takes-any-configuration", Breaks: "SVC-1",
		What: "An invalid configuration is accepted and ignored.",
		Wrap: perOpener(func(b *wrapper) backend { return takesAnyConfig{b} }),
	},
	{
		Name: "keeps-a-refused-configuration", Breaks: "SVC-1",
		What: "A configuration that was refused is read back all the same.",
		Wrap: perOpener(func(b *wrapper) backend { return keepsRefused{b} }),
	},
	{
		Name: "ignores-what-cannot-change", Breaks: "SVC-1",
		What: "A change that a live queue cannot make is neither made nor refused.",
		Wrap: perOpener(func(b *wrapper) backend { return ignoresFixed{b} }),
	},
	{
		Name: "lists-queues-backwards", Breaks: "SVC-1",
		What: "Queues are listed in reverse.",
		Wrap: perOpener(func(b *wrapper) backend { return listsBackwards{b} }),
	},
	{
		Name: "only-empties-a-deleted-queue", Breaks: "SVC-1",
		What: "Deleting a queue removes only its waiting messages.",
		Wrap: perOpener(func(b *wrapper) backend { return onlyEmpties{b} }),
	},
	{
		Name: "calls-a-deleted-queue-closed", Breaks: "SVC-1",
		What: "A handle on a deleted queue fails with ErrClosed.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return callsDeletedClosed{q} }),
	},
	{
		Name: "sends-to-the-next-queue-of-a-name", Breaks: "SVC-1",
		What: "A send through a handle on a deleted queue goes to the next queue of that name.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return sendsToNext{q} }),
	},
	{
		Name: "counts-the-next-queue-of-a-name", Breaks: "SVC-1",
		What: "A handle on a deleted queue counts the messages of the next queue of that name.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return countsNext{q} }),
	},
	{
		Name: "makes-queues-by-asking", Breaks: "SVC-1",
		What: "Asking for the configuration of a queue creates it.",
		Wrap: perOpener(func(b *wrapper) backend { return makesByAsking{b} }),
	},
	{
		Name: "keeps-the-keys-of-a-deleted-queue", Breaks: "SVC-1", Also: []string{"DUP-1"},
		What: "Dedup keys of a deleted queue are still in use in the next queue of that name.",
		Wrap: perOpener(func(b *wrapper) backend {
			keys := new(table[string, keyUse])
			b.spoil = func(q passThrough) driver.Queue { return keepsDeadKeys{q, keys} }
			return b
		}),
	},
	{
		Name: "always-answers-a-ping", Breaks: "SVC-1",
		What: "A closed backend still answers a ping.",
		Wrap: perOpener(func(b *wrapper) backend { return alwaysAnswers{b} }),
	},
}

type forgetsConfig struct{ *wrapper }

func (b forgetsConfig) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	_, err := b.wrapper.QueueConfig(ctx, name)
	return driver.Config{}, err
}

type purgesWhenConfigured struct{ *wrapper }

func (b purgesWhenConfigured) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	err := b.wrapper.ConfigureQueue(ctx, name, config)
	if err != nil {
		return err
	}
	queue, err := b.inner.OpenQueue(ctx, name)
	if err != nil {
		return err
	}
	_, err = queue.Purge(ctx)
	return errors.Join(err, queue.Close())
}

type purgesDeadWhenConfigured struct{ *wrapper }

func (b purgesDeadWhenConfigured) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	err := b.wrapper.ConfigureQueue(ctx, name, config)
	if err != nil {
		return err
	}
	q, err := b.open(ctx, name)
	if err != nil {
		return err
	}
	_, err = q.PurgeDead(ctx)
	return errors.Join(err, q.Close())
}

type frozenTraits struct {
	passThrough
	traits driver.Traits
}

func (q frozenTraits) Traits() driver.Traits { return q.traits }

type takesAnyConfig struct{ *wrapper }

func (b takesAnyConfig) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.Validate() != nil {
		return nil
	}
	return b.wrapper.ConfigureQueue(ctx, name, config)
}

type keepsRefused struct{ *wrapper }

func (b keepsRefused) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	err := b.wrapper.ConfigureQueue(ctx, name, config)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked[name] = config
	}
	return err
}

type ignoresFixed struct{ *wrapper }

func (b ignoresFixed) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	err := b.wrapper.ConfigureQueue(ctx, name, config)
	if errors.Is(err, driver.ErrUnsupported) {
		return nil
	}
	return err
}

type listsBackwards struct{ *wrapper }

func (b listsBackwards) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var names []string
		for name, err := range b.wrapper.Queues(ctx) {
			if err != nil {
				yield("", err)
				return
			}
			names = append(names, name)
		}
		for _, name := range slices.Backward(names) {
			if !yield(name, nil) {
				return
			}
		}
	}
}

type onlyEmpties struct{ *wrapper }

func (b onlyEmpties) DeleteQueue(ctx context.Context, name string) error {
	if _, err := b.QueueConfig(ctx, name); err != nil {
		return err
	}
	queue, err := b.inner.OpenQueue(ctx, name)
	if err != nil {
		return err
	}
	_, err = queue.Purge(ctx)
	return errors.Join(err, queue.Close())
}

type callsDeletedClosed struct{ passThrough }

func (q callsDeletedClosed) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if errors.Is(err, driver.ErrNotFound) {
		err = &driver.Error{Code: driver.ErrClosed, Op: "receive", Queue: q.name}
	}
	return got, err
}

// next opens the queue that has this name now.
func (q passThrough) next(ctx context.Context) (driver.Queue, error) {
	if _, err := q.wrapper.inner.(driver.Admin).QueueConfig(ctx, q.name); err != nil {
		return nil, err
	}
	return q.wrapper.inner.OpenQueue(ctx, q.name)
}

type sendsToNext struct{ passThrough }

func (q sendsToNext) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.passThrough.Send(ctx, msgs)
	if errors.Is(err, driver.ErrNotFound) {
		if next, failure := q.next(ctx); failure == nil {
			return next.Send(ctx, msgs)
		}
	}
	return sent, err
}

type countsNext struct{ passThrough }

func (q countsNext) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.passThrough.Stats(ctx)
	if errors.Is(err, driver.ErrNotFound) {
		if next, failure := q.next(ctx); failure == nil {
			return next.Stats(ctx)
		}
	}
	return stats, err
}

type makesByAsking struct{ *wrapper }

func (b makesByAsking) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.wrapper.QueueConfig(ctx, name)
	if !errors.Is(err, driver.ErrNotFound) {
		return config, err
	}
	return driver.Config{}, b.wrapper.ConfigureQueue(ctx, name, driver.Config{})
}

type keepsDeadKeys struct {
	passThrough
	used *table[string, keyUse]
}

func (q keepsDeadKeys) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.sendOne(ctx, msg)
		if err != nil || msg.DedupKey == "" || sent.Duplicate {
			return sent, err
		}
		key := q.name + "\x00" + msg.DedupKey
		if first, ok := q.used.get(key); ok && bytes.Equal(first.body, msg.Body) && time.Since(first.at) < q.Traits().DedupWindow {
			return driver.Sent{ID: first.id, Duplicate: true}, nil
		}
		q.used.put(key, keyUse{id: sent.ID, body: bytes.Clone(msg.Body), at: time.Now()})
		return sent, nil
	})
}

type alwaysAnswers struct{ *wrapper }

func (b alwaysAnswers) Ping(ctx context.Context) error {
	err := b.wrapper.Ping(ctx)
	if errors.Is(err, driver.ErrClosed) {
		return nil
	}
	return err
}
