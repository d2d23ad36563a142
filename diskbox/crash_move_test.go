package diskbox

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// This file is about messages that move while the power is cut. Those that move
// beside their queue and back are still in the book of that queue: there they must
// be found, once, whichever of the two queues they are in. Those that were
// forwarded when they died are dead for the book until they move home.

// beside is the name of a queue that messages of the book move to, or from; it is
// empty if there is none.
func (b *crashBook) beside() string {
	if b.moves {
		return "beside " + b.name
	}
	return b.config.DeadLetterTo
}

// goingHome reports whether messages that died may be on their way back.
func (b *crashBook) goingHome() bool { return b.pending[deedMove] > 0 && b.config.DeadLetterTo != "" }

// move moves messages to or from the queue beside, or home.
func (c *crashClient) move(q crashQueue) error {
	from, to, limit := q.queue, q.book.beside(), c.rng.IntN(4)
	switch {
	case !q.book.moves:
		from, to = q.beside, ""
	case c.chance(2):
		from, to = q.beside, q.book.name
	}
	deed := c.life.ledger.begin(q.book, deedMove, nil)
	moved, err := from.Move(c.ctx, to, limit)
	if err == nil {
		c.life.ledger.shuffled(deed, moved)
	}
	return err
}

// shuffled enters the answer to a move: it is unknown which messages it moved, if it
// moved some.
func (l *crashLedger) shuffled(d *crashDeed, moved int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	home := d.book.goingHome()
	for n := range d.book.items {
		i := &d.book.items[n]
		if i.gone || moved == 0 {
			continue
		}
		before := d.book.reachable(i, now)
		i.fuzzy, i.settledAt, i.notBefore = true, 0, time.Time{}
		if home && before&isDead != 0 {
			i.may, i.changed = i.may|before, l.tick
			i.sentAt, i.died = [2]time.Time{}, [2]time.Time{}
			i.arrived.to = l.tick
		}
	}
	l.endLocked(d)
}

// lookBeside adds what is in the queue beside.
func (c *crashContent) lookBeside(ctx context.Context, b *Backend, book *crashBook) error {
	if _, err := b.QueueConfig(ctx, book.beside()); errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	q, err := b.OpenQueue(ctx, book.beside())
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

// drainBeside receives and acks what is ready in the queue beside.
func (c *crashContent) drainBeside(ctx context.Context, b *Backend, book *crashBook) error {
	q, err := b.OpenQueue(ctx, book.beside())
	if err != nil {
		return err
	}
	return c.drain(ctx, q)
}

// The kinds that move, see crashQueues.
var movingKinds = []int{6, 8, 9}

func TestNoPowerCutLosesOrDoublesWhatMoves(t *testing.T) {
	var tally crashTally
	tally.fill(t, max(crashImages(t)/4, 100), func(l *crashLife) { l.kinds, l.nests = movingKinds, 4 })
	tally.expectNone(t)
}

// The harness must notice a message that is in both queues, or in neither.
func TestMovesThatGoWrongAreNoticed(t *testing.T) {
	var mu sync.Mutex
	lost, doubled := false, false
	var tally crashTally
	tally.fill(t, 2000, func(l *crashLife) {
		l.kinds = movingKinds
		l.inspect = func(book *crashBook, c *crashContent, at time.Time) {
			mu.Lock()
			defer mu.Unlock()
			for n := range c.peeked {
				if !book.moves || c.peeked[n].State == driver.StateDead {
					continue
				}
				var without, twice crashVerdict
				changed := c.copied()
				changed.peeked = append(changed.peeked[:n], changed.peeked[n+1:]...)
				without.judgeLook(book, changed, at)
				lost = lost || without.lost > 0
				changed = c.copied()
				changed.peeked = append(changed.peeked, changed.peeked[n])
				twice.judgeLook(book, changed, at)
				doubled = doubled || len(twice.wrong) > 0
				break
			}
			tally.enough.Store(lost && doubled)
		}
	})
	tally.expectNone(t)
	if !lost || !doubled {
		t.Errorf("a message that was lost was noticed: %v; one that was doubled: %v", lost, doubled)
	}
}
