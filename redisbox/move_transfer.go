package redisbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A message moves to another queue in three steps, each of which can be repeated:
// reserve takes it out of its order and marks it as moving; deliver adds it to the other
// queue, which remembers the arrival, or refuses it permanently; and finish removes it
// here, or puts it back. The second step alone decides, so any number of processes may
// continue a move that another has left unfinished. A moving message counts as in flight
// here, and no receiver gets it.

const (
	// reserveFor is how long a message is marked as moving before another process may
	// continue the move.
	reserveFor = 15 * time.Second
	// movePage bounds how many messages move in one round.
	movePage = 100
)

// A transfer delivers messages reserved in the source shard and records the outcome in
// the source.
type transfer struct {
	from    *shard
	targets *targets
	parts   map[*shard]*transferPart
	// outcomes are the arguments of move_finish.lua, and decided their messages.
	outcomes []string
	decided  []*reservedMessage
}

// A transferPart is the part of a transfer that goes to one shard.
type transferPart struct {
	sending *sendOp
	moves   []*reservedMessage // in the same order
}

// transferAll moves messages, and returns how many it has moved. Its error is the first of
// a message whose target is to; moves to other targets are resumed later.
func transferAll(ctx context.Context, s *shard, all *targets, out []reservedMessage, to string) (moved int, err error) {
	t := transfer{from: s, targets: all, parts: make(map[*shard]*transferPart)}
	note := func(target string, failure error) {
		if failure != nil && target == to && err == nil {
			err = failure
		}
	}
	for i := range out {
		note(out[i].target, t.address(ctx, &out[i]))
	}
	for target, part := range t.parts {
		note(targetNote(target.queue), t.deliver(ctx, target, part))
	}
	n, failure := t.finish(ctx)
	if failure != nil {
		return n, failure
	}
	for target, part := range t.parts {
		// An arrival that is not forgotten costs a little memory for a week.
		_, _ = target.arrival(ctx, "f", true, part.sending.arrivals)
	}
	return n, err
}

func (t *transfer) decide(m *reservedMessage, what string) {
	t.decided = append(t.decided, m)
	t.outcomes = append(t.outcomes, m.id, strconv.FormatUint(m.entry.nonce, 10), what)
}

// address adds a message to the part of the shard it goes to.
func (t *transfer) address(ctx context.Context, m *reservedMessage) error {
	target, err := t.targets.noted(ctx, m.target)
	if err != nil {
		return err
	}
	if target == nil {
		t.decide(m, "k")
		return t.gone(m)
	}
	var sent driver.Message
	if !readSent(&sent, m.id, m.sent) {
		t.decide(m, "d")
		return nil
	}
	for _, attribute := range []string{
		driver.AttributeDeadReason, driver.AttributeDeadSource, driver.AttributeDeadDeliveries, driver.AttributeDeadError,
	} {
		delete(sent.Attributes, attribute) // the map is ours
	}
	msg := driver.Outgoing{
		Body: sent.Body, Attributes: sent.Attributes, Group: sent.Group, ReplyTo: sent.ReplyTo, CorrelationID: sent.CorrelationID,
	}
	to := target.shardOfArrival(m.id, msg.Group)
	part := t.parts[to]
	if part == nil {
		part = &transferPart{sending: newSendOp(ctx, to)}
		t.parts[to] = part
	}
	extra := target.special(&msg)
	extra.arrival, extra.ordered, extra.token = true, true, packDoubles(float64(m.entry.nonce))
	extra.redrives, extra.first, extra.failure = m.entry.redrives, m.entry.first, m.entry.lastError
	part.sending.addSent(0, m.id, sent.EnqueuedAt.UnixNano(), &msg, extra)
	part.moves = append(part.moves, m)
	return nil
}

func (t *transfer) gone(m *reservedMessage) error {
	_, name, _ := strings.Cut(m.target, " ")
	return &driver.Error{Code: driver.ErrNotFound, Detail: fmt.Sprintf("queue %q does not exist any more", name)}
}

// deliver adds messages to a shard, and decides by its answer which have moved. After
// an error that leaves this open they stay marked as moving.
func (t *transfer) deliver(ctx context.Context, to *shard, part *transferPart) error {
	err := to.runDurably(ctx, &shardBatch{sends: []*sendOp{part.sending}}, true)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		for _, m := range part.moves {
			t.decide(m, "k")
		}
		return t.gone(part.moves[0])
	case errors.Is(err, driver.ErrFull): // out of memory
		part.sending.codes = strings.Repeat("f", len(part.moves))
	case err != nil:
		return err
	}
	codes := part.sending.codes
	if first := strings.IndexByte(codes, 'f'); first >= 0 {
		// No process may add them later that does not know that they were put back.
		refused, err := to.arrival(ctx, "r", true, part.sending.arrivals[first:])
		if err != nil {
			return err
		}
		codes = codes[:first] + refused
	}
	full := false
	for i, m := range part.moves {
		if codes != "" && codes[i] == 'f' {
			t.decide(m, "k")
			full = true
			continue
		}
		t.decide(m, "m")
	}
	if full {
		return &driver.Error{Code: driver.ErrFull, Detail: fmt.Sprintf("queue %q is full", to.queue.name), RetryAfter: retryAfter}
	}
	return nil
}

// finish records the outcomes in the source, and returns how many messages have moved. A
// resumed move counts for the process that records it first.
func (t *transfer) finish(ctx context.Context) (moved int, err error) {
	if len(t.outcomes) == 0 {
		return 0, nil
	}
	codes, err := t.from.finishMoves(ctx, t.outcomes)
	if err != nil {
		return 0, err
	}
	for i, m := range t.decided {
		if t.outcomes[3*i+2] == "m" && (codes[i] == 's' || !m.resumed) {
			moved++
		}
	}
	return moved, nil
}

// resumeMoves continues moves that have stalled. It does not wait.
func (f *forwarder) resumeMoves(ctx context.Context) {
	if f.resuming.Swap(true) {
		return
	}
	ctx = context.WithoutCancel(ctx) // the caller does not wait for it
	q := f.shard.queue
	q.server.running.start(func() {
		defer f.resuming.Store(false)
		for more := true; more; {
			out, _, left, err := f.shard.reserve(ctx, reserveRequest{limit: movePage, hold: reserveFor})
			if err == nil && len(out) > 0 {
				_, err = transferAll(ctx, f.shard, newTargets(f.queues), out, out[0].target)
			}
			if err != nil {
				q.server.logger.WarnContext(ctx, "cannot resume moves to another queue", "queue", q.name, "error", err)
			}
			more = err == nil && (left || len(out) == movePage)
		}
	})
}
