package diskbox

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// Messages that move while the power is cut. A message that moves to the queue beside its own
// and back stays in the model of its own queue: it must be found once, in either queue. A
// message that was forwarded when it died is dead in the model until it moves back.

// beside returns the name of the queue that messages of the model move to and from, or "".
func (b *crashModel) beside() string {
	if b.moves {
		return "beside " + b.name
	}
	return b.config.DeadLetterTo
}

// goingHome reports whether forwarded messages may be moving back.
func (b *crashModel) goingHome() bool { return b.pending[opMove] > 0 && b.config.DeadLetterTo != "" }

// move moves messages to or from the queue beside, or back to their source.
func (c *crashClient) move(q crashQueue) error {
	from, to, limit := q.queue, q.model.beside(), c.rng.IntN(4)
	switch {
	case !q.model.moves:
		from, to = q.beside, ""
	case c.chance(2):
		from, to = q.beside, q.model.name
	}
	op := c.env.models.begin(q.model, opMove, nil)
	moved, err := from.Move(c.ctx, to, limit)
	if err == nil {
		c.env.models.shuffled(op, moved)
	}
	return err
}

// shuffled records the result of a move: if it moved some messages, it is unknown which.
func (l *crashModels) shuffled(d *crashOp, moved int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	home := d.model.goingHome()
	for n := range d.model.messages {
		i := &d.model.messages[n]
		if i.gone || moved == 0 {
			continue
		}
		before := d.model.reachable(i, now)
		i.fuzzy, i.settledAt, i.notBefore = true, 0, time.Time{}
		if home && before&isDead != 0 {
			i.may, i.changed = i.may|before, l.tick
			i.sentAt, i.died = [2]time.Time{}, [2]time.Time{}
			i.arrived.to = l.tick
		}
	}
	l.endLocked(d)
}

// lookBeside adds the messages of the queue beside.
func (c *crashContent) lookBeside(ctx context.Context, b *Backend, model *crashModel) error {
	if _, err := b.QueueConfig(ctx, model.beside()); errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	q, err := b.OpenQueue(ctx, model.beside())
	if err != nil {
		return err
	}
	all, stats, err := peekAll(ctx, q)
	c.peeked = append(c.peeked, all...)
	c.stats.Ready += stats.Ready
	c.stats.Delayed += stats.Delayed
	c.stats.InFlight += stats.InFlight
	c.stats.Dead += stats.Dead
	return err
}

// drainBeside receives and acks the ready messages of the queue beside.
func (c *crashContent) drainBeside(ctx context.Context, b *Backend, model *crashModel) error {
	q, err := b.OpenQueue(ctx, model.beside())
	if err != nil {
		return err
	}
	return c.drain(ctx, q)
}

// The kinds that move, see crashQueues.
var movingKinds = []int{6, 8, 9}

func TestNoPowerCutLosesOrDoublesMovingMessages(t *testing.T) {
	volume.Repeats(t)
	var summary crashSummary
	summary.fill(t, max(crashImages(t)/4, 50), func(e *crashEnv) { e.kinds, e.nests = movingKinds, 4 })
	summary.expectNone(t)
}

// The harness must detect a message that is in both queues, or in neither.
func TestFaultyMovesAreDetected(t *testing.T) {
	volume.InFull(t)
	var mu sync.Mutex
	lost, doubled := false, false
	var summary crashSummary
	summary.fill(t, 2000, func(e *crashEnv) {
		e.kinds = movingKinds
		e.inspect = func(model *crashModel, c *crashContent, at time.Time) {
			mu.Lock()
			defer mu.Unlock()
			for n := range c.peeked {
				if !model.moves || c.peeked[n].State == driver.StateDead {
					continue
				}
				var without, twice crashResult
				changed := c.copied()
				changed.peeked = append(changed.peeked[:n], changed.peeked[n+1:]...)
				without.checkLook(model, changed, at)
				lost = lost || without.lost > 0
				changed = c.copied()
				changed.peeked = append(changed.peeked, changed.peeked[n])
				twice.checkLook(model, changed, at)
				doubled = doubled || len(twice.wrong) > 0
				break
			}
			summary.enough.Store(lost && doubled)
		}
	})
	summary.expectNone(t)
	if !lost || !doubled {
		t.Errorf("a message that was lost was noticed: %v; one that was doubled: %v", lost, doubled)
	}
}
