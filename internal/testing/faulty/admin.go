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
	{Name: "forgets-the-configuration", Breaks: "SVC-1",
		What: "The configuration that is read back is empty.",
		on:   hooks{queueConfig: alterRead(func(_ *wrapper, _ string, c *driver.Config) { *c = driver.Config{} })}},
	{Name: "purges-when-configured", Breaks: "SVC-1",
		What: "Configuring a queue purges it.",
		on:   hooks{configure: afterConfigure(driver.Queue.Purge)}},
	{Name: "purges-the-dead-when-configured", Breaks: "SVC-1",
		What: "Configuring a queue removes its dead letters.",
		on:   hooks{configure: afterConfigure(driver.Queue.PurgeDead)}},
	{Name: "keeps-old-traits-in-open-handles", Breaks: "SVC-1",
		What: "A handle answers with the traits that held when it was opened.",
		on: hooks{
			opened: func(q *queue) { *state[driver.Traits](q.own) = q.Traits() },
			traits: func(q *queue) driver.Traits { return *state[driver.Traits](q.own) },
		}},
	{Name: "takes-any-configuration", Breaks: "SVC-1",
		What: "An invalid configuration is accepted and ignored.",
		on: hooks{configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
			if config.Validate() != nil {
				return nil
			}
			return b.ConfigureQueue(ctx, name, config)
		}}},
	{Name: "keeps-a-refused-configuration", Breaks: "SVC-1",
		What: "A configuration that was refused is read back all the same.",
		on: hooks{configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
			err := b.ConfigureQueue(ctx, name, config)
			if err != nil {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.asked[name] = config
			}
			return err
		}}},
	{Name: "ignores-what-cannot-change", Breaks: "SVC-1",
		What: "A change that a live queue cannot make is neither made nor refused.",
		on: hooks{configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
			err := b.ConfigureQueue(ctx, name, config)
			return unless(errors.Is(err, driver.ErrUnsupported), err)
		}}},
	{Name: "lists-queues-backwards", Breaks: "SVC-1",
		What: "Queues are listed in reverse.",
		on: hooks{queues: func(b *wrapper, ctx context.Context) iter.Seq2[string, error] {
			return rearranged(b.Queues(ctx), slices.Reverse)
		}}},
	{Name: "only-empties-a-deleted-queue", Breaks: "SVC-1",
		What: "Deleting a queue removes only its waiting messages.",
		on: hooks{deleteQueue: func(b *wrapper, ctx context.Context, name string) error {
			if _, err := b.QueueConfig(ctx, name); err != nil {
				return err
			}
			return b.inQueue(ctx, name, driver.Queue.Purge)
		}}},
	{Name: "calls-a-deleted-queue-closed", Breaks: "SVC-1",
		What: "A handle on a deleted queue fails with ErrClosed.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			if errors.Is(err, driver.ErrNotFound) {
				err = &driver.Error{Code: driver.ErrClosed, Op: "receive", Queue: q.name}
			}
			return got, err
		}}},
	{Name: "sends-to-the-next-queue-of-a-name", Breaks: "SVC-1",
		What: "A send through a handle on a deleted queue goes to the next queue of that name.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			sent, err := q.Send(ctx, msgs)
			if next := q.next(ctx, err); next != nil {
				return next.Send(ctx, msgs)
			}
			return sent, err
		}}},
	{Name: "counts-the-next-queue-of-a-name", Breaks: "SVC-1",
		What: "A handle on a deleted queue counts the messages of the next queue of that name.",
		on: hooks{stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
			stats, err := q.Stats(ctx)
			if next := q.next(ctx, err); next != nil {
				return next.Stats(ctx)
			}
			return stats, err
		}}},
	{Name: "makes-queues-by-asking", Breaks: "SVC-1",
		What: "Asking for the configuration of a queue creates it.",
		on: hooks{queueConfig: func(b *wrapper, ctx context.Context, name string) (driver.Config, error) {
			config, err := b.QueueConfig(ctx, name)
			if !errors.Is(err, driver.ErrNotFound) {
				return config, err
			}
			return driver.Config{}, b.ConfigureQueue(ctx, name, driver.Config{})
		}}},
	{Name: "keeps-the-keys-of-a-deleted-queue", Breaks: "SVC-1", Also: []string{"DUP-1"},
		What: "Dedup keys of a deleted queue are still in use in the next queue of that name.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if err != nil || msg.DedupKey == "" || sent.Duplicate {
				return sent, err
			}
			used, key := state[keyUses](q.wrapper), q.name+"\x00"+msg.DedupKey
			if first, ok := used.get(key); ok && bytes.Equal(first.body, msg.Body) && time.Since(first.at) < q.Traits().DedupWindow {
				return driver.Sent{ID: first.id, Duplicate: true}, nil
			}
			used.put(key, keyUse{id: sent.ID, body: bytes.Clone(msg.Body), at: time.Now()})
			return sent, nil
		})}},
	{Name: "always-answers-a-ping", Breaks: "SVC-1",
		What: "A closed backend still answers a ping.",
		on: hooks{ping: func(b *wrapper, ctx context.Context) error {
			err := b.Ping(ctx)
			return unless(errors.Is(err, driver.ErrClosed), err)
		}}},
}

var annotationFaults = []Saboteur{
	{Name: "cuts-annotations", Breaks: "SVC-1",
		What: "Only the first four kilobytes of an annotation are kept.",
		on: hooks{queueConfig: alterRead(func(_ *wrapper, _ string, c *driver.Config) {
			c.Annotation = c.Annotation[:min(len(c.Annotation), 4096)]
		})}},
	{Name: "forgets-the-annotation-when-configured-again", Breaks: "SVC-1",
		What: "When a queue is configured again, its annotation is gone.",
		on: hooks{
			configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
				err := b.ConfigureQueue(ctx, name, config)
				if err == nil {
					add(state[counts](b), name, 1)
				}
				return err
			},
			queueConfig: alterRead(func(b *wrapper, name string, c *driver.Config) {
				set(state[counts](b).at(name) > 1, &c.Annotation, "")
			}),
		}},
	{Name: "keeps-the-first-annotation", Breaks: "SVC-1",
		What: "An annotation cannot be removed.",
		on: hooks{
			configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
				err := b.ConfigureQueue(ctx, name, config)
				if err == nil && config.Annotation != "" {
					state[texts](b).put(name, config.Annotation)
				}
				return err
			},
			queueConfig: alterRead(func(b *wrapper, name string, c *driver.Config) {
				set(c.Annotation == "", &c.Annotation, state[texts](b).at(name))
			}),
		}},
	{Name: "takes-any-annotation", Breaks: "SVC-1",
		What: "A configuration with an annotation that is too long is accepted and ignored.",
		on: hooks{configure: func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
			if len(config.Annotation) > driver.MaxAnnotationBytes {
				return nil
			}
			return b.ConfigureQueue(ctx, name, config)
		}}},
	{Name: "forgets-the-annotation-on-restart", Breaks: "SVC-1",
		What: "After a restart a queue has no annotation.",
		restart: func(q *queue, ctx context.Context) error {
			return q.changeStored(ctx, func(c *driver.Config) bool {
				annotated := c.Annotation != ""
				c.Annotation = ""
				return annotated
			})
		}},
}

// inQueue opens a queue of the wrapped backend and calls do.
func (b *wrapper) inQueue(ctx context.Context, name string, do func(driver.Queue, context.Context) (int, error)) error {
	queue, err := b.inner.OpenQueue(ctx, name)
	if err != nil {
		return err
	}
	_, err = do(queue, ctx)
	return errors.Join(err, queue.Close())
}

// afterConfigure does something to each queue that is configured.
func afterConfigure(do func(driver.Queue, context.Context) (int, error)) func(*wrapper, context.Context, string, driver.Config) error {
	return func(b *wrapper, ctx context.Context, name string, config driver.Config) error {
		if err := b.ConfigureQueue(ctx, name, config); err != nil {
			return err
		}
		return b.inQueue(ctx, name, do)
	}
}

// next opens the queue that has this name now, if err says that the one of the handle is
// deleted. It returns nil if there is none.
func (q *queue) next(ctx context.Context, err error) driver.Queue {
	if !errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	if _, err := q.wrapper.inner.(driver.Admin).QueueConfig(ctx, q.name); err != nil {
		return nil
	}
	next, err := q.wrapper.inner.OpenQueue(ctx, q.name)
	if err != nil {
		return nil
	}
	return next
}
