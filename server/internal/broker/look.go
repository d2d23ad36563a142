package broker

import (
	"context"
	"errors"
	"iter"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// Looked is a message that was looked at without being taken. A message that is
// not what was sent has no body here: Damaged says so.
type Looked struct {
	driver.Peeked
	Topic   string
	Seal    Seal
	Damaged bool
}

// Stats counts the messages of a topic. It needs a token for counting, and may
// block on I/O. Codes: ErrNotFound, ErrUnavailable.
func (c Caller) Stats(ctx context.Context, topic string) (driver.Stats, error) {
	if _, err := c.authorize(ctx, capability.OpStats, topic); err != nil {
		return driver.Stats{}, err
	}
	return inTopic(ctx, &c, "stats", topic, lastForReads, func(t *topicUse) (driver.Stats, error) { return t.queue.Stats(ctx) })
}

// A forecaster is a backend that knows what a queue that it would make promises.
type forecaster interface{ DefaultTraits() driver.Traits }

// Traits says what a topic promises and where its limits are, those of the
// daemon included. It is for everyone who may do anything with the topic. For a
// topic that is not there it says what it would promise, to callers that may send
// to it, receive from it or administer it and are not [Caller.Existing]; to others
// it is ErrNotFound. It makes nothing, unless the backend cannot tell otherwise. It
// may block on I/O. Codes: ErrInvalid, ErrNotFound, ErrFull, ErrUnavailable.
func (c Caller) Traits(ctx context.Context, name string) (traits driver.Traits, err error) {
	grant, err := c.grantUse(ctx, name)
	if err != nil {
		return traits, err
	}
	b := c.broker
	if err := b.admit("open", name, lastForReads); err != nil {
		return traits, err
	}
	mayMake := !c.existing && (grant.AllowsOperation(capability.OpSend) || grant.AllowsOperation(capability.OpRecv) || grant.AllowsOperation(capability.OpAdmin))
	forecast, _ := b.opener.(forecaster)
	t, err := c.use(ctx, "open", name, mayMake && forecast == nil && b.State() <= lastForWrites)
	if err != nil {
		if mayMake && forecast != nil && errors.Is(err, driver.ErrNotFound) {
			return bounded(forecast.DefaultTraits(), b.limits.Load()), nil
		}
		return traits, err
	}
	defer func() { t.release(b.now()) }()
	if c.existing && b.admin != nil {
		// The open handle may be of a queue that another daemon has deleted.
		if _, err := b.admin.QueueConfig(ctx, t.backend); err != nil {
			b.gone(t, err)
			return traits, localised(err, t)
		}
	}
	return t.traits(b.limits.Load()), nil
}

func (c *Caller) authorizeUse(ctx context.Context, topic string) error {
	_, err := c.grantUse(ctx, topic)
	return err
}

// grantUse authorises whoever may do anything with a topic.
func (c *Caller) grantUse(ctx context.Context, topic string) (*capability.Grant, error) {
	request := c.request(0, topic)
	grant, err := c.broker.verifier.AuthorizeUse(ctx, c.token, request)
	if err != nil {
		c.refused(ctx, request, err)
	}
	return grant, err
}

// inTopic does something with a topic that is there.
func inTopic[R any](ctx context.Context, c *Caller, op, name string, last State, do func(*topicUse) (R, error)) (R, error) {
	var none R
	b := c.broker
	if err := b.admit(op, name, last); err != nil {
		return none, err
	}
	t, err := c.use(ctx, op, name, false)
	if err != nil {
		return none, err
	}
	defer func() { t.release(b.now()) }()
	if err := c.turn(ctx, op, name, 1); err != nil {
		return none, err
	}
	defer c.done(1)
	result, err := do(&topicUse{topic: t, broker: b, by: c.holder})
	c.used(t, err)
	return result, localised(err, t)
}

// Peek yields the messages of a topic that match a query, as driver.Queue does.
// It needs a token for peeking, whose quotas count what is yielded. An error ends
// the sequence. Codes: ErrInvalid, ErrNotFound, ErrUnsupported (the backend cannot
// be looked into), ErrUnavailable.
func (c Caller) Peek(ctx context.Context, topic string, query driver.Query) iter.Seq2[Looked, error] {
	return func(yield func(Looked, error) bool) {
		grant, err := c.authorize(ctx, capability.OpPeek, topic)
		if err == nil {
			err = c.broker.admit("peek", topic, lastForReads)
		}
		if err != nil {
			yield(Looked{}, err)
			return
		}
		for looked, err := range c.look(ctx, topic, query) {
			if err == nil {
				grant.Charge(1, int64(len(looked.Body)))
			}
			if !yield(looked, err) {
				return
			}
		}
	}
}

// look is Peek for who is authorised.
func (c *Caller) look(ctx context.Context, name string, query driver.Query) iter.Seq2[Looked, error] {
	return func(yield func(Looked, error) bool) {
		t, err := c.use(ctx, "peek", name, false)
		if err != nil {
			yield(Looked{}, err)
			return
		}
		defer func() { t.release(c.broker.now()) }()
		if err := t.lacks(t.queue.Traits().Peek, "peek", "the backend cannot be looked into"); err != nil {
			yield(Looked{}, err)
			return
		}
		if err := c.turn(ctx, "peek", name, 1); err != nil {
			yield(Looked{}, err)
			return
		}
		defer c.done(1)
		for peeked, err := range t.queue.Peek(ctx, query) {
			if err != nil {
				c.broker.gone(t, err)
				yield(Looked{}, localised(err, t))
				return
			}
			if !yield(t.looked(peeked), nil) {
				return
			}
		}
	}
}

// looked makes a message fit to be shown.
func (t *topic) looked(p driver.Peeked) Looked {
	seal, err := t.unseal(&p.Message)
	if err != nil {
		p.Body = nil
	}
	if source, ours := topicName(t.tenant, p.Source); ours {
		p.Source = source
	}
	return Looked{Peeked: p, Topic: t.name, Seal: seal, Damaged: err != nil}
}
