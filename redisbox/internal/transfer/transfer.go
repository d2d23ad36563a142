package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
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
	// MovePage bounds how many messages move in one round.
	MovePage = 100
)

// A Transfer delivers messages reserved in the source shard and records the outcome in
// the source.
type Transfer struct {
	From    *shard.Shard
	Targets *targets
	Parts   map[*shard.Shard]*TransferPart
	// outcomes are the arguments of move_finish.lua, and decided their messages.
	outcomes []string
	decided  []*shard.ReservedMessage
	// held are the ids of messages that stay because others hold their unique keys in the target.
	held []string
}

// A TransferPart is the part of a transfer that goes to one shard.
type TransferPart struct {
	sending *shard.SendOp
	moves   []*shard.ReservedMessage // in the same order
}

// transferAll moves messages, and returns how many it has moved, and the ids of those whose
// unique key is held in the target. Its error is the first of a message whose target is to, and
// ErrConflict only if no other; moves to other targets are resumed later.
func transferAll(ctx context.Context, s *shard.Shard, all *targets, out []shard.ReservedMessage, to string) (moved int, held []string, err error) {
	t := Transfer{From: s, Targets: all, Parts: make(map[*shard.Shard]*TransferPart)}
	note := func(target string, failure error) {
		if failure != nil && target == to && (err == nil || errors.Is(err, driver.ErrConflict)) {
			err = failure
		}
	}
	for i := range out {
		note(out[i].Target, t.Address(ctx, &out[i]))
	}
	for target, part := range t.Parts {
		note(shard.TargetNote(target.Queue), t.Deliver(ctx, target, part))
	}
	moved, failure := t.Finish(ctx)
	if failure != nil {
		return moved, t.held, failure
	}
	for target, part := range t.Parts {
		// An arrival that is not forgotten costs a little memory for a week.
		_, _ = target.Arrival(ctx, "f", true, part.sending.Arrivals)
	}
	return moved, t.held, err
}

// Decide notes what becomes of a message in the source; see move_finish.lua.
func (t *Transfer) Decide(m *shard.ReservedMessage, what string) {
	t.decided = append(t.decided, m)
	t.outcomes = append(t.outcomes, m.ID, strconv.FormatUint(m.Entry.Nonce, 10), what)
}

// Address adds a message to the part of the shard it goes to.
func (t *Transfer) Address(ctx context.Context, m *shard.ReservedMessage) error {
	target, err := t.Targets.noted(ctx, m.Target)
	if err != nil {
		return err
	}
	if target == nil {
		t.Decide(m, "k")
		return t.gone(m)
	}
	var sent driver.Message
	if !m.Entry.ReadSent(&sent, m.ID, m.Sent) {
		t.Decide(m, "d")
		return nil
	}
	for _, attribute := range []string{
		driver.AttributeDeadReason, driver.AttributeDeadSource, driver.AttributeDeadDeliveries, driver.AttributeDeadError,
	} {
		delete(sent.Attributes, attribute) // the map is ours
	}
	msg := driver.Outgoing{
		Body: sent.Body, Attributes: sent.Attributes, Group: sent.Group, ReplyTo: sent.ReplyTo, CorrelationID: sent.CorrelationID, Priority: m.Entry.Priority,
	}
	unique := ""
	if target.TakesKeys(msg.Group) {
		unique = m.Entry.Unique
	}
	to := target.ShardOfArrival(m.ID, msg.Group, unique)
	part := t.Parts[to]
	if part == nil {
		part = &TransferPart{sending: shard.NewSendOp(ctx, to)}
		t.Parts[to] = part
	}
	extra := target.Special(&msg)
	extra.Arrival, extra.Ordered, extra.Token = true, true, shard.PackDoubles(float64(m.Entry.Nonce))
	extra.Redrives, extra.First, extra.Failure = m.Entry.Redrives, m.Entry.First, m.Entry.LastError
	extra.TTL, extra.Ends, extra.Unique = m.Entry.TTL, m.Entry.Ends, unique
	part.sending.AddSent(0, m.ID, sent.EnqueuedAt.UnixNano(), &msg, extra)
	part.moves = append(part.moves, m)
	return nil
}

func (t *Transfer) gone(m *shard.ReservedMessage) error {
	_, name, _ := strings.Cut(m.Target, " ")
	return &driver.Error{Code: driver.ErrNotFound, Detail: fmt.Sprintf("queue %q does not exist any more", name)}
}

// Deliver adds messages to a shard, and decides by its answer which have moved. After
// an error that leaves this open they stay marked as moving.
func (t *Transfer) Deliver(ctx context.Context, to *shard.Shard, part *TransferPart) error {
	err := to.RunDurably(ctx, &shard.Batch{Sends: []*shard.SendOp{part.sending}}, true)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		for _, m := range part.moves {
			t.Decide(m, "k")
		}
		return t.gone(part.moves[0])
	case errors.Is(err, driver.ErrFull): // out of memory
		part.sending.Codes = strings.Repeat("f", len(part.moves))
	case err != nil:
		return err
	}
	var held error // the first
	part.sending.Results(func(n int, code byte, holder string) {
		if code == 'h' {
			id := part.moves[n].ID
			held = cmp.Or(held, shard.KeyHeld(id, holder))
			t.held = append(t.held, id)
		}
	})
	codes := part.sending.Codes
	if first := strings.IndexByte(codes, 'f'); first >= 0 {
		// No process may add them later that does not know that they were put back.
		refused, err := to.Arrival(ctx, "r", true, part.sending.Arrivals[first:])
		if err != nil {
			return err
		}
		codes = codes[:first] + refused
	}
	full := false
	for i, m := range part.moves {
		stays := codes != "" && (codes[i] == 'f' || codes[i] == 'h')
		full = full || (stays && codes[i] == 'f')
		if stays {
			t.Decide(m, "k")
		} else {
			t.Decide(m, "m")
		}
	}
	if full {
		return &driver.Error{Code: driver.ErrFull, Detail: fmt.Sprintf("queue %q is full", to.Queue.Name), RetryAfter: shard.RetryAfter}
	}
	return held
}

// Finish records the outcomes in the source, and returns how many messages have moved. A
// resumed move counts for the process that records it first.
func (t *Transfer) Finish(ctx context.Context) (moved int, err error) {
	if len(t.outcomes) == 0 {
		return 0, nil
	}
	codes, err := t.From.FinishMoves(ctx, t.outcomes)
	if err != nil {
		return 0, err
	}
	for i, m := range t.decided {
		if t.outcomes[3*i+2] == "m" && (codes[i] == 's' || !m.Resumed) {
			moved++
		}
	}
	return moved, nil
}

// resumeMoves continues moves that have stalled. It does not wait.
func (f *Forwarder) resumeMoves(ctx context.Context) {
	if f.resuming.Swap(true) {
		return
	}
	ctx = context.WithoutCancel(ctx) // the caller does not wait for it
	q := f.shard.Queue
	q.Server.Running.Start(func() {
		defer f.resuming.Store(false)
		for more := true; more; {
			out, _, left, err := f.shard.Reserve(ctx, shard.ReserveRequest{Limit: MovePage, Hold: reserveFor})
			if err == nil && len(out) > 0 {
				_, _, err = transferAll(ctx, f.shard, NewTargets(f.queues), out, out[0].Target)
			}
			if err != nil {
				q.Server.Logger.WarnContext(ctx, "cannot resume moves to another queue", "queue", q.Name, "error", err)
			}
			more = err == nil && (left || len(out) == MovePage)
		}
	})
}
