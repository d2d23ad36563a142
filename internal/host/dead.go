package host

import (
	"context"
	"fmt"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) DeadLetter(ctx context.Context, burials []driver.Burial) error {
	if err := h.check(ctx, "dead-letter"); err != nil {
		return err
	}
	var failures failures
	for i, burial := range burials {
		if err := h.bury(burial); err != nil {
			failures.add(len(burials), i, err)
		}
	}
	if h.frees() {
		h.refresh()
	}
	return failures.err()
}

func (h *handle) bury(burial driver.Burial) error {
	if !burial.Reason.Valid() {
		return &driver.Error{
			Code: driver.ErrInvalid, Op: "dead-letter", Queue: h.name, Field: "Reason",
			Detail: fmt.Sprintf("%q is not one of the reasons of package driver", burial.Reason),
		}
	}
	sh, delivery := h.locate(burial.Receipt)
	if sh == nil {
		return h.expired("dead-letter", burial.Receipt)
	}
	sh.lock()
	defer sh.unlock()
	err := sh.engine.DeadLetter(h.now(), delivery, burial.Reason, driver.TrimCause(burial.Error), driver.TrimCause(burial.ErrorType))
	switch err {
	case nil:
		return nil
	case driver.ErrFull:
		return h.named(h.full("the dead letters are full", driver.DeadRetry), "dead-letter")
	default:
		return h.expired("dead-letter", burial.Receipt)
	}
}

func (h *handle) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		if err := h.check(ctx, "dead-letters"); err != nil {
			yield(driver.DeadLetter{}, err)
			return
		}
		for _, peeked := range h.look(driver.Query{States: []driver.State{driver.StateDead}}) {
			if err := h.check(ctx, "dead-letters"); err != nil {
				yield(driver.DeadLetter{}, err)
				return
			}
			if !yield(peeked.DeadLetter, nil) {
				return
			}
		}
	}
}

func (h *handle) Redrive(ctx context.Context, ids []string, limit int) (moved int, err error) {
	if err := h.check(ctx, "redrive"); err != nil {
		return 0, err
	}
	if limit < 0 {
		return 0, &driver.Error{
			Code: driver.ErrInvalid, Op: "redrive", Queue: h.name, Field: "limit",
			Detail: fmt.Sprintf("%d is negative; 0 means no limit", limit),
		}
	}
	defer h.refresh()
	for _, found := range h.findDead(ids) {
		if limit > 0 && moved == limit {
			break
		}
		sh := found.shard
		sh.lock()
		letter := sh.engine.FindDead(found.id)
		if letter == nil {
			sh.unlock()
			continue
		}
		err := sh.engine.Redrive(h.now(), letter)
		sh.unlock()
		switch err {
		case nil:
			moved++
		case driver.ErrFull:
			return moved, h.named(h.full("the queue is full", retryAfter), "redrive")
		}
	}
	return moved, nil
}

func (h *handle) Discard(ctx context.Context, ids []string) (removed int, err error) {
	if err := h.check(ctx, "discard"); err != nil {
		return 0, err
	}
	for _, id := range ids {
		for _, sh := range h.shards {
			sh.lock()
			sh.engine.Advance(h.now())
			if letter := sh.engine.FindDead(id); letter != nil {
				sh.engine.Discard(h.now(), letter)
				removed++
			}
			sh.unlock()
		}
	}
	return removed, nil
}

func (h *handle) PurgeDead(ctx context.Context) (removed int, err error) {
	if err := h.check(ctx, "purge dead letters"); err != nil {
		return 0, err
	}
	for _, sh := range h.shards {
		sh.lock()
		removed += sh.engine.PurgeDead(h.now())
		sh.unlock()
	}
	return removed, nil
}

// foundLetter says where a dead letter is.
type foundLetter struct {
	id     string
	deadAt int64
	death  uint64 // orders those of one shard that died at the same time
	shard  *shard
}

// findDead returns the dead letters with these ids, or all if ids is nil, in
// the order in which they died.
func (q *queue) findDead(ids []string) []foundLetter {
	var found []foundLetter
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.Advance(q.now())
		add := func(e *engine.Entry) bool {
			found = append(found, foundLetter{id: e.ID, deadAt: e.Extra.DeadAt, death: e.Place, shard: sh})
			return true
		}
		if ids == nil {
			sh.engine.DeadLetters(add)
		}
		for _, id := range ids {
			if letter := sh.engine.FindDead(id); letter != nil {
				add(letter)
			}
		}
		sh.unlock()
	}
	sortByDeath(found)
	return found
}
