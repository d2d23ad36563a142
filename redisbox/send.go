package redisbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

func (h *handle) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := h.check(ctx, "send"); err != nil {
		return nil, err
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	if slot, ok := ctx.Value(linkedSlotKey{}).(*linkedSlot); ok && slot.namedBy(msgs) {
		return h.sendWithSlot(ctx, msgs, slot)
	}
	return h.send(ctx, sendCall{msgs: msgs})
}

func (h *handle) send(ctx context.Context, call sendCall) ([]driver.Sent, error) {
	call.queue, call.sent = h.queue, make([]driver.Sent, len(call.msgs))
	if err := call.run(ctx); err != nil {
		return nil, h.outcome(err, "send")
	}
	return call.sent, driver.NewBatchError(call.failures)
}

// A sendCall is one call of Send: messages, their shards, and their results.
type sendCall struct {
	queue    *queue
	msgs     []driver.Outgoing
	sent     []driver.Sent
	failures []error
	// parts are not answered yet; there may be several for a shard.
	parts []*shard.SendOp
	// slot is created with the message, if it is not nil.
	slot *linkedSlot
}

// run sends all messages. Consecutive messages without a claim between them go in one
// call; the order within a shard is that of the batch.
func (d *sendCall) run(ctx context.Context) error {
	traits := d.queue.Settings.Load().Traits
	for i := range d.msgs {
		msg := &d.msgs[i]
		if err := msg.Check(&traits); err != nil {
			d.fail(i, err)
			continue
		}
		s := d.queue.shardFor(msg)
		if msg.DedupKey != "" && d.queue.ShardOf(msg.DedupKey) != s {
			if err := d.flush(ctx); err != nil {
				return err
			}
			if err := d.claim(ctx, i, s); err != nil {
				return err
			}
			continue
		}
		part := d.part(ctx, s)
		part.Add(i, s.NewID(), msg, d.queue.Special(msg))
		part.Slot = d.slot.begin(ctx)
	}
	return d.flush(ctx)
}

func (d *sendCall) fail(i int, err error) {
	d.failures = driver.FailAt(d.failures, len(d.msgs), i, d.queue.named(err, "send"))
}

// part returns the part for a shard that has room.
func (d *sendCall) part(ctx context.Context, s *shard.Shard) *shard.SendOp {
	for i := len(d.parts) - 1; i >= 0; i-- {
		if part := d.parts[i]; part.Shard == s {
			if part.HasRoom() {
				return part
			}
			break
		}
	}
	part := shard.NewSendOp(ctx, s)
	d.parts = append(d.parts, part)
	return part
}

// flush sends the parts and waits for all of them. Calls of one shard may overtake each
// other, so the next part for a shard is submitted when the one before is answered.
func (d *sendCall) flush(ctx context.Context) error {
	for len(d.parts) > 0 {
		round, rest := d.parts[:0], []*shard.SendOp(nil) // first for their shard, and later ones
		for _, part := range d.parts {
			if slices.ContainsFunc(round, func(earlier *shard.SendOp) bool { return earlier.Shard == part.Shard }) {
				rest = append(rest, part)
			} else {
				round = append(round, part)
				part.Submit(ctx)
			}
		}
		d.parts = rest
		if err := d.finish(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// finish waits for parts that were submitted, and records their results.
func (d *sendCall) finish(ctx context.Context, parts []*shard.SendOp) error {
	var failure error
	for _, part := range parts {
		select {
		case <-part.Done:
		case <-ctx.Done(): // operations that were submitted are completed
			d.slot.abandon(ctx, part)
			return ctx.Err()
		}
		d.slot.finish(part)
		switch {
		case errors.Is(part.Err, driver.ErrFull): // out of memory; other parts may have been sent
			for _, i := range part.Positions {
				d.fail(i, part.Err)
			}
		case part.Err != nil:
			failure = part.Err
		default:
			d.collect(part)
		}
	}
	return failure
}

// collect records the results of a part.
func (d *sendCall) collect(part *shard.SendOp) {
	part.Results(func(n int, code byte, detail string) {
		d.result(part.Positions[n], part.IDs[n], code, detail)
	})
}

// result records the result of one message; see send.lua and dedup.lua for the codes.
func (d *sendCall) result(i int, id string, code byte, detail string) {
	switch code {
	case 's':
		d.sent[i] = driver.Sent{ID: id}
	case 'd', 'h':
		d.sent[i] = driver.Sent{ID: detail, Duplicate: true}
	case 'p':
		d.sent[i] = driver.Sent{ID: detail, Duplicate: true, Replaced: true}
	case 'k':
		most := d.queue.Settings.Load().Config.Effective().DedupMax
		d.fail(i, d.queue.full(fmt.Sprintf("the table of unique keys is full (DedupMax %d)", most), shard.RetryAfter))
	case 'c':
		d.fail(i, &driver.Error{
			Code: driver.ErrConflict, MessageID: detail, Field: "DedupKey", Detail: "was used for another body",
		})
	case 'w':
		wait, _ := strconv.ParseInt(detail, 10, 64)
		d.fail(i, d.queue.full("the dedup table is full", time.Duration(wait)*time.Microsecond))
	case 'u':
		d.fail(i, &driver.Error{
			Code: driver.ErrUnavailable, Field: "DedupKey", RetryAfter: shard.RetryAfter,
			Detail: "another send with this key has not been finished",
		})
	default:
		d.fail(i, d.queue.full("the queue is full", shard.RetryAfter))
	}
}
