package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// Move holds setup while it transfers a page of messages. So transfers do not overlap,
// no queue is created, deleted or configured meanwhile, and two shards can be locked
// together: see lockBoth.
//
// A message is transferred in one step, under both locks, and recorded in one piece. Like
// a forwarded dead letter, it is visible in its new queue before that is durable; later
// operations on it are recorded after the transfer, and so cannot be durable without it.
func (h *handle) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if err := h.check(ctx, "move"); err != nil {
		return 0, err
	}
	switch {
	case limit < 0:
		return 0, h.badMove("limit", fmt.Sprintf("%d is negative; 0 means no limit", limit))
	case to == h.name:
		return 0, h.badMove("to", "is this queue")
	case to != "":
		if err := driver.CheckName(to); err != nil {
			return 0, h.named(err, "move")
		}
	}
	transfer := transfer{handle: h, to: to, limit: limit}
	for _, sh := range h.shards {
		if err := transfer.shard(ctx, sh); err != nil {
			return transfer.moved, err
		}
	}
	return transfer.moved, cmp.Or(h.broken("move"), transfer.keyHeld)
}

func (h *handle) badMove(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "move", Queue: h.name, Field: field, Detail: detail}
}

// movePage is how many messages are transferred while setup is locked, and with one wait
// for the journal.
const movePage = 256

// transfer is the state of one call of Move.
type transfer struct {
	*handle
	to    string
	limit int
	moved int
	// keyHeld is why a message stays whose unique key another one holds in the target; the
	// others are transferred.
	keyHeld error

	from, into *shard // locked together; nil: none is locked
}

// candidate is a message to transfer, and its target.
type candidate struct {
	mark  engine.Mark
	size  int
	group string
	to    *queue
	// id and extra are set if the message keeps a unique key in the target.
	id    string
	extra *engine.Extra
}

// shard transfers the messages that are in a shard when it starts. Later messages may
// come from the target of the others, and following them might never end.
func (m *transfer) shard(ctx context.Context, from *shard) error {
	from.lock()
	until := from.engine.Tail()
	from.unlock()
	for last := uint64(0); last < until && m.left() != 0; {
		if err := m.check(ctx, "move"); err != nil {
			return err
		}
		if m.journal != nil {
			if err := m.journal.Admit(); err != nil {
				return m.named(err, "move")
			}
		}
		before := m.moved
		looked, refused := m.page(from, last, until)
		last = looked
		if m.moved > before {
			if err := m.backend.barrier(); err != nil {
				m.moved = before // the outcome is unknown
				return m.named(err, "move")
			}
		}
		if refused != nil {
			return m.named(refused, "move")
		}
	}
	return nil
}

// left returns how many more messages may be transferred, or -1 without a limit.
func (m *transfer) left() int {
	if m.limit == 0 {
		return -1
	}
	return m.limit - m.moved
}

// page transfers the next messages, and returns the place up to which it has looked.
func (m *transfer) page(from *shard, last, until uint64) (looked uint64, err error) {
	m.backend.setup.Lock()
	defer m.backend.setup.Unlock()
	if m.isEnded.Load() {
		return last, m.failure(m.code, "move")
	}
	candidates, looked, err := m.choose(from, last, until)
	touched := make(map[*queue]bool)
	for i := range candidates {
		touched[candidates[i].to] = true
		if err = m.one(from, &candidates[i]); err != nil {
			break
		}
	}
	m.hold(nil, nil)
	for q := range touched {
		q.serve(nil)
	}
	if m.frees() {
		m.serve(nil)
	}
	return looked, err
}

// choose returns messages to transfer with their targets. Setup is locked.
func (m *transfer) choose(from *shard, last, until uint64) (candidates []candidate, looked uint64, err error) {
	target, err := m.target(m.to)
	if err != nil {
		return nil, last, err
	}
	n := movePage
	if left := m.left(); left > 0 {
		n = min(n, left)
	}
	from.lock()
	defer from.unlock()
	_, looked = from.engine.Movable(m.now(), last, until, n, func(e *engine.Entry) bool {
		home := target
		if m.to == "" {
			home = m.home(e)
		}
		if home != nil {
			candidates = append(candidates, candidateOf(e, home))
		}
		return home != nil
	})
	return candidates, looked, nil
}

func candidateOf(e *engine.Entry, to *queue) candidate {
	group := ""
	if e.Extra != nil {
		group = e.Extra.Group
	}
	chosen := candidate{mark: engine.MarkOf(e), size: int(e.Size), group: group, to: to}
	if e.Extra != nil && e.Extra.Unique != nil && to.takesKeys(group) {
		chosen.id, chosen.extra = string([]byte(e.ID)), e.Extra
	}
	return chosen
}

// target returns the queue called name, or nil if name is empty.
func (m *transfer) target(name string) (*queue, error) {
	if name == "" {
		return nil, nil
	}
	target, err := m.backend.find(name, "move")
	if err == nil && target == nil {
		err = &driver.Error{Code: driver.ErrNotFound, Op: "move", Queue: m.name, Field: "to", Detail: fmt.Sprintf("there is no queue %q", name)}
	}
	return target, err
}

// home returns the queue in which a message died before it was forwarded here, or nil.
func (m *transfer) home(e *engine.Entry) *queue {
	if e.Extra == nil {
		return nil
	}
	name := e.Extra.Attributes[driver.AttributeDeadSource]
	if name == "" || name == m.name {
		return nil
	}
	home, err := m.backend.find(name, "move")
	if err != nil {
		return nil
	}
	return home
}

// one transfers one message, if it is still there. A message without a group goes to the
// next shard that has room.
func (m *transfer) one(from *shard, candidate *candidate) error {
	takesTurns := candidate.extra == nil && candidate.to.takesTurns(candidate.group)
	for range candidate.to.shards {
		to := candidate.to.groupShard(candidate.group)
		if takesTurns {
			to = candidate.to.shards[(candidate.to.nextSend.Load()+1)%uint64(len(candidate.to.shards))]
		}
		if candidate.extra != nil {
			to = candidate.to.keyShard(candidate.extra.Unique.Key)
		}
		m.hold(from, to)
		now := m.now()
		fits := to.engine.Room(now, candidate.size) == nil
		held := to.keyHeldLocked(now, "move", candidate.id, candidate.extra)
		switch {
		case fits && held != nil && from.engine.CanGo(now, candidate.mark):
			if errors.Is(held, driver.ErrConflict) {
				m.keyHeld = cmp.Or(m.keyHeld, m.named(held, "move"))
				return nil
			}
			return held
		case fits && from.handOver(now, candidate.mark, to):
			m.moved++
		case fits || !from.engine.CanGo(now, candidate.mark):
			return nil // it did not use up the turn
		}
		if takesTurns {
			candidate.to.nextSend.Add(1)
		}
		if fits {
			return nil
		}
		if !takesTurns {
			break
		}
	}
	return candidate.to.full("the target queue is full", retryAfter)
}

// hold locks two shards, and unlocks the previous ones; nil means none.
func (m *transfer) hold(from, to *shard) {
	if m.from == from && m.into == to {
		return
	}
	if m.from != nil {
		unlockBoth(m.from, m.into)
	}
	m.from, m.into = from, to
	if from != nil {
		lockBoth(from, to)
	}
}

// handOver transfers one message, if it is still there. Both shards are locked, and there
// is room.
func (sh *shard) handOver(now engine.Moment, mark engine.Mark, to *shard) bool {
	gone := sh.engine.Withdraw(now, mark)
	if gone == nil {
		return false
	}
	extra := movedExtra(gone.Extra)
	if extra != nil && extra.Unique != nil && !to.queue.takesKeys(extra.Group) {
		extra.Unique = nil
	}
	e := to.engine.StageArrival(now, gone, extra)
	if journal := sh.queue.journal; journal != nil {
		journal.Lock()
		journal.Sent(to.id, e)
		journal.Withdrawn(sh.id, gone)
		journal.Unlock()
	}
	to.engine.PublishNow(now, e)
	sh.engine.UnblockGroup(gone)
	return true
}

// movedExtra returns extra without the attributes that forwarding adds.
func movedExtra(extra *engine.Extra) *engine.Extra {
	if extra == nil {
		return nil
	}
	moved := *extra
	if len(moved.Attributes) > 0 { // receivers may be reading the map
		moved.Attributes = maps.Clone(moved.Attributes)
		for _, key := range []string{
			driver.AttributeDeadReason, driver.AttributeDeadSource, driver.AttributeDeadDeliveries, driver.AttributeDeadError,
		} {
			delete(moved.Attributes, key)
		}
	}
	if len(moved.Attributes) == 0 {
		moved.Attributes = nil
	}
	return &moved
}

// lockBoth locks two shards of different queues in the global order.
func lockBoth(a, b *shard) {
	if b.before(a) {
		a, b = b, a
	}
	a.lock()
	b.lock()
	a.alongside, b.alongside = b, a
}

// unlockBoth unlocks two shards, and then handles the effects of each.
func unlockBoth(a, b *shard) {
	a.alongside, b.alongside = nil, nil
	b.mu.Unlock()
	a.unlock()
	b.lock()
	b.unlock()
}
