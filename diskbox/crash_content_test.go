package diskbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// How the tests read the content of a disk after a crash.

// A crashContent is the content of one queue after a crash.
type crashContent struct {
	exists bool
	config driver.Config
	// peeked are all messages, and stats the counts, before any operation. Forwarded dead
	// letters count as dead.
	peeked []driver.Peeked
	stats  driver.Stats
	paused bool
	// repeats are the answers to repeated sends of the tokens in repeated: first those that
	// were answered before the crash, then those that were pending.
	repeated []int
	repeats  []driver.Sent
	// drained are the messages that were then received and acked, in rounds: first the ready
	// ones, later the rest.
	drained [][]driver.Delivery
	// left and leftDead are the messages that remained, and redriven those that came after a
	// redrive of all.
	left     driver.Stats
	leftDead []driver.DeadLetter
	redriven []driver.Delivery
}

// look reads the whole queue without changing it.
func (c *crashContent) look(ctx context.Context, b *Backend, model *crashModel) error {
	var err error
	c.config, err = b.QueueConfig(ctx, model.name)
	if errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	c.exists = true
	q, err := b.OpenQueue(ctx, model.name)
	if err != nil {
		return err
	}
	if c.peeked, c.stats, err = peekAll(ctx, q); err != nil {
		return err
	}
	c.paused, c.stats.Paused = c.stats.Paused, false
	if model.moves {
		return c.lookBeside(ctx, b, model)
	}
	if model.config.DeadLetterTo == "" {
		return nil
	}
	deadLetters, err := b.OpenQueue(ctx, model.config.DeadLetterTo)
	if err != nil {
		return err
	}
	forwarded, stats, err := peekAll(ctx, deadLetters)
	if err != nil {
		return err
	}
	for _, p := range forwarded {
		p.State = driver.StateDead
		p.Reason = driver.Reason(p.Attributes[driver.AttributeDeadReason])
		p.ErrorType = crashErrorType // a forwarded message does not keep it
		p.EnqueuedAt = time.Time{}   // that is the time of the move
		if p.Deliveries, err = strconv.Atoi(p.Attributes[driver.AttributeDeadDeliveries]); err != nil {
			return err
		}
		p.Source = p.Attributes[driver.AttributeDeadSource]
		p.Attributes = unforwarded(p.Attributes)
		c.peeked = append(c.peeked, p)
	}
	c.stats.Dead += stats.Waiting()
	return nil
}

// unforwarded returns attributes without those of dead letters.
func unforwarded(attributes map[string]string) map[string]string {
	attributes = maps.Clone(attributes)
	for _, key := range []string{
		driver.AttributeDeadReason, driver.AttributeDeadSource, driver.AttributeDeadDeliveries, driver.AttributeDeadError,
	} {
		delete(attributes, key)
	}
	return attributes
}

func peekAll(ctx context.Context, q driver.Queue) (all []driver.Peeked, stats driver.Stats, err error) {
	for p, err := range q.Peek(ctx, driver.Query{}) {
		if err != nil {
			return nil, stats, err
		}
		all = append(all, p)
	}
	stats, err = q.Stats(ctx)
	return all, stats, err
}

// useAtOnce repeats answered sends, and may receive the ready messages.
func (c *crashContent) useAtOnce(ctx context.Context, b *Backend, model *crashModel, drain bool) error {
	q, err := b.OpenQueue(ctx, model.name)
	if err != nil {
		return err
	}
	var answered []int
	for token := range model.messages {
		if i := &model.messages[token]; i.out.DedupKey != "" && !i.unsent {
			answered = append(answered, token)
		}
	}
	if err := c.repeat(ctx, q, model, answered); err != nil || !drain {
		return err
	}
	return c.drain(ctx, q)
}

// useLater drains the queue when all messages are due and no lease is left, and repeats
// unanswered sends.
func (c *crashContent) useLater(ctx context.Context, b *Backend, model *crashModel, redrive bool) error {
	q, err := b.OpenQueue(ctx, model.name)
	if err != nil {
		return err
	}
	if err := c.drain(ctx, q); err != nil {
		return err
	}
	if model.moves {
		if err := c.drainBeside(ctx, b, model); err != nil {
			return err
		}
	}
	if c.left, err = q.Stats(ctx); err != nil {
		return err
	}
	for letter, err := range q.DeadLetters(ctx) {
		if err != nil {
			return err
		}
		c.leftDead = append(c.leftDead, letter)
	}
	if redrive && model.config.DeadLetterTo == "" {
		if err := c.redrive(ctx, q); err != nil {
			return err
		}
	}
	var pending []int
	for token := range model.messages {
		if i := &model.messages[token]; i.out.DedupKey != "" && i.unsent {
			pending = append(pending, token)
		}
	}
	return c.repeat(ctx, q, model, pending)
}

// repeat repeats sends from before the crash.
func (c *crashContent) repeat(ctx context.Context, q driver.Queue, model *crashModel, tokens []int) error {
	if len(tokens) == 0 {
		return nil
	}
	var batch []driver.Outgoing
	for _, token := range tokens {
		batch = append(batch, model.messages[token].out)
	}
	sent, err := q.Send(ctx, batch)
	c.repeated, c.repeats = append(c.repeated, tokens...), append(c.repeats, sent...)
	return err
}

// drain receives and acks the ready messages.
func (c *crashContent) drain(ctx context.Context, q driver.Queue) error {
	if err := c.resume(ctx, q); err != nil {
		return err
	}
	var round []driver.Delivery
	for {
		got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 64, Visibility: time.Hour})
		if err != nil {
			return err
		}
		if len(got) == 0 {
			break
		}
		receipts := make([]driver.Receipt, len(got))
		for n := range got {
			receipts[n] = got[n].Receipt
		}
		if err := q.Ack(ctx, receipts); err != nil {
			return err
		}
		round = append(round, got...)
	}
	c.drained = append(c.drained, round)
	return nil
}

// redrive redrives the dead letters, and receives them. Those with one unique key leave one
// after the other.
func (c *crashContent) redrive(ctx context.Context, q driver.Queue) error {
	drained := len(c.drained)
	c.redriven = []driver.Delivery{} // not nil: it was asked for
	for redriven := 0; ; {
		moved, err := q.Redrive(ctx, nil, 0)
		redriven += moved
		held := errors.Is(err, driver.ErrConflict) && moved > 0
		if err != nil && !held {
			return err
		}
		if err := c.drain(ctx, q); err != nil {
			return err
		}
		c.redriven, c.drained = append(c.redriven, c.drained[drained]...), c.drained[:drained]
		if !held && redriven != len(c.leftDead) {
			return fmt.Errorf("%d of %d dead letters were redriven", redriven, len(c.leftDead))
		}
		if !held {
			return nil
		}
	}
}
