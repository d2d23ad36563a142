package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// Purge removes all ready, delayed and in-flight messages of a queue and returns how
// many it removed. It needs a token for purge, and blocks until the backend is done.
// Codes: ErrNotFound, ErrUnavailable, ErrFull (too soon after the last purge).
func (c Caller) Purge(ctx context.Context, queue string) (removed int, err error) {
	if _, err := c.authorize(ctx, capability.OpPurge, queue); err != nil {
		return 0, err
	}
	defer func() { c.record("purge", queue, "", removed, err) }()
	return inQueue(ctx, &c, "purge", queue, lastForWrites, func(q *queueUse) (int, error) {
		removed, err := q.handle.Purge(ctx)
		if err == nil {
			q.leases.clear()
		}
		return removed, err
	})
}

// PurgeAndForget is Purge that also forgets the queue's dedup keys, for protocols that
// promise so; see driver.Queue. Codes: ErrUnsupported (the backend cannot).
func (c Caller) PurgeAndForget(ctx context.Context, queue string) (removed int, err error) {
	if removed, err = c.Purge(ctx, queue); err != nil {
		return removed, err
	}
	_, err = inQueue(ctx, &c, "purge", queue, lastForWrites, func(q *queueUse) (struct{}, error) {
		if err := q.lacks(q.handle.Traits().ForgetDedup, "purge", "backend cannot forget dedup keys"); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, q.handle.ForgetDedup(ctx)
	})
	return removed, err
}

// Pause stops the deliveries of a queue, and Resume starts them again; see driver.Queue. They
// need a token for admin, and block until the backend is done. Codes: ErrNotFound,
// ErrUnsupported (the backend cannot), ErrUnavailable.
func (c Caller) Pause(ctx context.Context, queue string) error {
	return c.setPaused(ctx, "pause", queue, driver.Queue.Pause)
}

// Resume ends a pause.
func (c Caller) Resume(ctx context.Context, queue string) error {
	return c.setPaused(ctx, "resume", queue, driver.Queue.Resume)
}

func (c *Caller) setPaused(ctx context.Context, op, queue string, set func(driver.Queue, context.Context) error) (err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return err
	}
	defer func() { c.record(op, queue, "", 0, err) }()
	_, err = inQueue(ctx, c, op, queue, lastForWrites, func(q *queueUse) (struct{}, error) {
		if err := q.lacks(q.handle.Traits().Pause, op, "backend cannot pause queues"); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, set(q.handle, ctx)
	})
	return err
}

// Throttle delivers no message of a group for a time; see driver.Queue. It needs a token for
// throttle, and blocks until the backend is done. Codes: ErrInvalid, ErrFull (too many groups are
// throttled), ErrNotFound, ErrUnsupported (the backend cannot), ErrUnavailable. Workers throttle as
// often as servers refuse them, so the audit log does not record it.
func (c Caller) Throttle(ctx context.Context, queue, group string, wait time.Duration) error {
	if _, err := c.authorize(ctx, capability.OpThrottle, queue); err != nil {
		return err
	}
	_, err := inQueue(ctx, &c, "throttle", queue, lastForWrites, func(q *queueUse) (struct{}, error) {
		if err := q.lacks(q.handle.Traits().GroupLimits, "throttle", "groups of the queue cannot be throttled"); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, q.handle.Throttle(ctx, group, wait)
	})
	return err
}

// Edit changes a waiting message; see driver.Queue. It needs a token for admin, and blocks until
// the backend is done. Codes: ErrNotFound, ErrConflict (in flight or dead), ErrInvalid,
// ErrUnsupported (the backend cannot), ErrUnavailable.
func (c Caller) Edit(ctx context.Context, queue, id string, edit driver.Edit) (was driver.State, err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return "", err
	}
	change, kind, note := "due", EventEdited, "due "+edit.DeliverAt.UTC().Format(time.RFC3339)
	switch {
	case edit.Remove:
		change, kind, note = "remove", EventRemoved, ""
	case edit.Ready:
		change, note = "ready", "ready"
	case edit.Prioritize:
		change, note = "priority", fmt.Sprintf("priority %d", edit.Priority)
	}
	defer func() { c.record("edit "+change, queue, shortened(id), 0, err) }()
	return inQueue(ctx, &c, "edit", queue, lastForWrites, func(q *queueUse) (driver.State, error) {
		traits := q.handle.Traits()
		if err := q.lacks(traits.Edit, "edit", "backend cannot change single messages"); err != nil {
			return "", err
		}
		if err := edit.Check(&traits); err != nil {
			return "", err
		}
		if _, ok := parseMessageID(id); !ok { // a search for it would find nothing
			return "", driver.NotWaiting(shortened(id), "")
		}
		was, err := q.handle.Edit(ctx, id, edit)
		if err == nil {
			c.broker.traces.note(&q.queueKey, id, q.by, kind, 0, note, time.Now())
			q.meter.Edited(change)
		}
		return was, err
	})
}

// Configure creates a queue or changes its configuration; messages are kept.
// Settings that are unset in config are kept; in a new queue they are the backend's
// default. It needs a token for admin on the queue and on the target of its dead
// letters. It blocks until the backend is done. Codes: ErrInvalid, ErrUnsupported, ErrFull (it does not exist, and the caller's
// share of queues is used up).
func (c Caller) Configure(ctx context.Context, queue string, config driver.Config) (err error) {
	b := c.broker
	grant, err := c.administer(ctx, "configure", queue, lastForWrites)
	if err != nil {
		return err
	}
	defer func() {
		c.record("configure", queue, "", 0, err)
		c.slowRefusal(ctx, nil, err)
	}()
	name, err := backendName(c.tenant, queue)
	if err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return err
	}
	if config.DeadLetterTo != "" {
		if !grant.AllowsQueue(config.DeadLetterTo) {
			_, err := c.authorize(ctx, capability.OpAdmin, config.DeadLetterTo)
			return err
		}
		if config.DeadLetterTo, err = backendName(c.tenant, config.DeadLetterTo); err != nil {
			return err
		}
	}
	if err := c.paceCreation(ctx, "configure", name, queue); err != nil {
		return named(err, name, queue)
	}
	if err := c.turn(ctx, "configure", queue, configureUnits); err != nil {
		return err
	}
	defer c.done(configureUnits)
	unclaim, err := c.claimQueue(ctx, "configure", name, queue)
	if err != nil {
		return named(err, name, queue)
	}
	if err := b.admin.ConfigureQueue(ctx, name, config); err != nil {
		unclaim()
		return named(err, name, queue)
	}
	b.census.add(name, capability.TokenID{})
	return nil
}

// Config returns the configuration of a queue. It needs a token for
// administration, and may block on I/O. Codes: ErrNotFound, ErrUnsupported.
func (c Caller) Config(ctx context.Context, queue string) (driver.Config, error) {
	if _, err := c.administer(ctx, "read the configuration", queue, lastForReads); err != nil {
		return driver.Config{}, err
	}
	name, err := backendName(c.tenant, queue)
	if err != nil {
		return driver.Config{}, err
	}
	config, err := c.broker.admin.QueueConfig(ctx, name)
	if target, ours := queueName(c.tenant, config.DeadLetterTo); ours {
		config.DeadLetterTo = target
	}
	return config, named(err, name, queue)
}

// Queues lists the queues of the caller's tenant, in order. It needs a token for
// admin on any queue; an error ends the sequence. Codes:
// ErrUnsupported, ErrUnavailable.
func (c Caller) Queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if _, err := c.administer(ctx, "list", "", lastForReads); err != nil {
			yield("", err)
			return
		}
		for name, err := range c.broker.admin.Queues(ctx) {
			if err != nil {
				yield("", err)
				return
			}
			queue, ours := queueName(c.tenant, name)
			if ours && !yield(queue, nil) {
				return
			}
		}
	}
}

// Delete removes a queue with everything in it. Receives that wait get
// ErrNotFound. It needs a token for admin, and blocks until the backend is done.
// Codes: ErrNotFound, ErrUnsupported.
func (c Caller) Delete(ctx context.Context, queue string) (err error) {
	if _, err := c.administer(ctx, "delete", queue, lastForWrites); err != nil {
		return err
	}
	defer func() { c.record("delete", queue, "", 0, err) }()
	b := c.broker
	name, err := backendName(c.tenant, queue)
	if err != nil {
		return err
	}
	if err := c.turn(ctx, "delete", queue, 1); err != nil {
		return err
	}
	defer c.done(1)
	if err := b.admin.DeleteQueue(ctx, name); err != nil {
		if errors.Is(err, driver.ErrNotFound) {
			b.census.remove(name)
		}
		return named(err, name, queue)
	}
	b.census.remove(name)
	key := queueKey{c.tenant, queue}
	if q := b.queues.shard(key).acquire(key); q != nil {
		b.forget(q)
		q.release(b.now())
	}
	return nil
}

// Ping reports whether the backend answers. It is for health checks, and needs no
// token.
func (b *Broker) Ping(ctx context.Context) error {
	if pinger, ok := b.opener.(driver.Pinger); ok {
		return pinger.Ping(ctx)
	}
	return nil
}

func (c *Caller) administer(ctx context.Context, op, queue string, last State) (*verify.Grant, error) {
	grant, err := c.authorize(ctx, capability.OpAdmin, queue)
	if err == nil {
		err = c.broker.admit(op, queue, last)
	}
	if err == nil && c.broker.admin == nil {
		err = &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: queue, Detail: "backend does not support managing queues"}
	}
	return grant, err
}

// ClockBehind returns how far the wall clock was set back since the daemon started.
func (b *Broker) ClockBehind() time.Duration { return b.verifier.Stats().ClockBehind }
