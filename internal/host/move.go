package host

import (
	"context"
	"fmt"
	"maps"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// Move holds setup for a page of messages at a time. So moves are kept apart from
// each other, no queue comes, goes or is configured anew meanwhile, and two shards
// can be locked together: see lockBoth.
//
// A message moves in one step, under both locks, and with a journal in one piece.
// Like a dead letter that is forwarded, it can be seen in its new queue before that
// is durable; what is done to it there is written down later, and so cannot be
// durable without the move.
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
	moving := moving{handle: h, to: to, limit: limit}
	for _, sh := range h.shards {
		if err := moving.shard(ctx, sh); err != nil {
			return moving.moved, err
		}
	}
	return moving.moved, h.broken("move")
}

func (h *handle) badMove(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "move", Queue: h.name, Field: field, Detail: detail}
}

// movePage is how many messages move while setup is locked, and with one wait for a
// journal.
const movePage = 256

// moving is one call of Move on its way.
type moving struct {
	*handle
	to    string
	limit int
	moved int

	from, into *shard // locked together; nil: none are
}

// mover is a message that is to move, and where to.
type mover struct {
	mark  engine.Mark
	size  int
	group string
	to    *queue
}

// shard moves what was in a shard when it began. What comes later may come from
// where the others go, and would keep it busy for ever.
func (m *moving) shard(ctx context.Context, from *shard) error {
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
				m.moved = before // nobody knows
				return m.named(err, "move")
			}
		}
		if refused != nil {
			return m.named(refused, "move")
		}
	}
	return nil
}

// left is how many may still move, -1 if any number may.
func (m *moving) left() int {
	if m.limit == 0 {
		return -1
	}
	return m.limit - m.moved
}

// page moves the next messages, and returns up to which place it has looked.
func (m *moving) page(from *shard, last, until uint64) (looked uint64, err error) {
	m.backend.setup.Lock()
	defer m.backend.setup.Unlock()
	if m.isEnded.Load() {
		return last, m.failure(m.code, "move")
	}
	movers, looked, err := m.choose(from, last, until)
	touched := make(map[*queue]bool)
	for i := range movers {
		touched[movers[i].to] = true
		if err = m.one(from, &movers[i]); err != nil {
			break
		}
	}
	m.hold(nil, nil)
	for q := range touched {
		q.refresh()
	}
	if m.frees() {
		m.refresh()
	}
	return looked, err
}

// choose looks for messages to move, and says where to. Setup is locked.
func (m *moving) choose(from *shard, last, until uint64) (movers []mover, looked uint64, err error) {
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
			movers = append(movers, moverOf(e, home))
		}
		return home != nil
	})
	return movers, looked, nil
}

func moverOf(e *engine.Entry, to *queue) mover {
	group := ""
	if e.Extra != nil {
		group = e.Extra.Group
	}
	return mover{mark: engine.MarkOf(e), size: int(e.Size), group: group, to: to}
}

// target returns the queue called name, nil for no name.
func (m *moving) target(name string) (*queue, error) {
	if name == "" {
		return nil, nil
	}
	target, err := m.backend.find(name, "move")
	if err == nil && target == nil {
		err = &driver.Error{Code: driver.ErrNotFound, Op: "move", Queue: m.name, Field: "to", Detail: "there is no queue of that name"}
	}
	return target, err
}

// home returns the queue that a message died in before it came here, or nil.
func (m *moving) home(e *engine.Entry) *queue {
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

// one moves one message, if it is still there. A message without a group goes to
// the next shard that has room.
func (m *moving) one(from *shard, mover *mover) error {
	takesTurns := mover.to.takesTurns(mover.group)
	for range mover.to.shards {
		to := mover.to.groupShard(mover.group)
		if takesTurns {
			to = mover.to.shards[(mover.to.nextSend.Load()+1)%uint64(len(mover.to.shards))]
		}
		m.hold(from, to)
		now := m.now()
		fits := to.engine.Room(now, mover.size) == nil
		switch {
		case fits && from.handOver(now, mover.mark, to):
			m.moved++
		case fits || !from.engine.CanGo(now, mover.mark):
			return nil // and it took no turn
		}
		if takesTurns {
			mover.to.nextSend.Add(1)
		}
		if fits {
			return nil
		}
		if !takesTurns {
			break
		}
	}
	return mover.to.full("the queue to move to is full", retryAfter)
}

// hold makes sure that two shards are locked, and no others; nil means none.
func (m *moving) hold(from, to *shard) {
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

// handOver moves one message, if it is still there. Both shards are locked, and
// there is room.
func (sh *shard) handOver(now engine.Moment, mark engine.Mark, to *shard) bool {
	gone := sh.engine.Withdraw(now, mark)
	if gone == nil {
		return false
	}
	e := to.engine.StageArrival(now, gone, movedExtra(gone.Extra))
	if journal := sh.queue.journal; journal != nil {
		journal.Lock()
		journal.Sent(to.id, e)
		journal.Withdrawn(sh.id, gone)
		journal.Unlock()
	}
	to.engine.PublishNow(now, e)
	sh.engine.UnblockGroup(gone)
	to.queue.waiters.wake(1)
	return true
}

// movedExtra is extra without what a message gets when it dies and is forwarded.
func movedExtra(extra *engine.Extra) *engine.Extra {
	if extra == nil {
		return nil
	}
	moved := *extra
	if len(moved.Attributes) > 0 { // others may be reading the map
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

// lockBoth locks two shards of different queues, in the order for all.
func lockBoth(a, b *shard) {
	if b.before(a) {
		a, b = b, a
	}
	a.lock()
	b.lock()
	a.alongside, b.alongside = b, a
}

// unlockBoth unlocks two shards, and then does what the effects in each ask for.
func unlockBoth(a, b *shard) {
	a.alongside, b.alongside = nil, nil
	b.mu.Unlock()
	a.unlock()
	b.lock()
	b.unlock()
}
