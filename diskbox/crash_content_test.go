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

// This file looks at what a crash left.

// A crashContent is what was found in one queue.
type crashContent struct {
	exists bool
	config driver.Config
	// peeked is everything that was there, and stats what was counted, before
	// anything was done. Dead letters that were forwarded count as dead.
	peeked []driver.Peeked
	stats  driver.Stats
	// repeats are the answers to sends of the tokens in repeated: those that
	// were answered before the crash, and last those that were pending.
	repeated []int
	repeats  []driver.Sent
	// drained is what was then received, and acked, in rounds: what is ready,
	// and later the rest.
	drained [][]driver.Delivery
	// left and leftDead are what remained, and redriven what came when all of
	// that was redriven.
	left     driver.Stats
	leftDead []driver.DeadLetter
	redriven []driver.Delivery
}

// look reads everything there is, and changes nothing.
func (c *crashContent) look(ctx context.Context, b *Backend, book *crashBook) error {
	var err error
	c.config, err = b.QueueConfig(ctx, book.name)
	if errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	c.exists = true
	q, err := b.OpenQueue(ctx, book.name)
	if err != nil {
		return err
	}
	if c.peeked, c.stats, err = peekAll(ctx, q); err != nil {
		return err
	}
	if book.moves {
		return c.lookBeside(ctx, b, book)
	}
	if book.config.DeadLetterTo == "" {
		return nil
	}
	deadLetters, err := b.OpenQueue(ctx, book.config.DeadLetterTo)
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
		p.ErrorType = crashErrorType // it has no place to go
		p.EnqueuedAt = time.Time{}   // that is when it came here
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

// unforwarded leaves out the attributes of the dead.
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

// useAtOnce repeats sends that were answered, and may receive what is ready.
func (c *crashContent) useAtOnce(ctx context.Context, b *Backend, book *crashBook, drain bool) error {
	q, err := b.OpenQueue(ctx, book.name)
	if err != nil {
		return err
	}
	var answered []int
	for token := range book.items {
		if i := &book.items[token]; i.out.DedupKey != "" && !i.unsent {
			answered = append(answered, token)
		}
	}
	if err := c.repeat(ctx, q, book, answered); err != nil || !drain {
		return err
	}
	return c.drain(ctx, q)
}

// useLater drains the queue, when everything is due and nothing is leased, and
// repeats sends that were not answered.
func (c *crashContent) useLater(ctx context.Context, b *Backend, book *crashBook, redrive bool) error {
	q, err := b.OpenQueue(ctx, book.name)
	if err != nil {
		return err
	}
	if err := c.drain(ctx, q); err != nil {
		return err
	}
	if book.moves {
		if err := c.drainBeside(ctx, b, book); err != nil {
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
	if redrive && book.config.DeadLetterTo == "" {
		if err := c.redrive(ctx, q); err != nil {
			return err
		}
	}
	var pending []int
	for token := range book.items {
		if i := &book.items[token]; i.out.DedupKey != "" && i.unsent {
			pending = append(pending, token)
		}
	}
	return c.repeat(ctx, q, book, pending)
}

// repeat sends again what was sent, or was being sent, before the crash.
func (c *crashContent) repeat(ctx context.Context, q driver.Queue, book *crashBook, tokens []int) error {
	if len(tokens) == 0 {
		return nil
	}
	var batch []driver.Outgoing
	for _, token := range tokens {
		batch = append(batch, book.items[token].out)
	}
	sent, err := q.Send(ctx, batch)
	c.repeated, c.repeats = append(c.repeated, tokens...), append(c.repeats, sent...)
	return err
}

// drain receives and acks what is ready.
func (c *crashContent) drain(ctx context.Context, q driver.Queue) error {
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

func (c *crashContent) redrive(ctx context.Context, q driver.Queue) error {
	moved, err := q.Redrive(ctx, nil, 0)
	if err != nil {
		return err
	}
	if moved != len(c.leftDead) {
		return fmt.Errorf("%d of %d dead letters were redriven", moved, len(c.leftDead))
	}
	drained := len(c.drained)
	if err := c.drain(ctx, q); err != nil {
		return err
	}
	c.redriven, c.drained = c.drained[drained], c.drained[:drained]
	return nil
}
