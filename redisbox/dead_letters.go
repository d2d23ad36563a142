package redisbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

func (h *handle) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		if err := h.check(ctx, "dead-letters"); err != nil {
			yield(driver.DeadLetter{}, err)
			return
		}
		for seen, err := range h.inState(ctx, driver.StateDead, "", nil) {
			if err == nil {
				err = h.check(ctx, "dead-letters")
			}
			if err != nil {
				yield(driver.DeadLetter{}, h.outcome(err, "dead-letters"))
				return
			}
			if !yield(seen.DeadLetter, nil) {
				return
			}
		}
	}
}

// deadLettersPage is how many dead letters are named in one call.
const deadLettersPage = 100

func (h *handle) Redrive(ctx context.Context, ids []string, limit int) (moved int, err error) {
	if err := h.check(ctx, "redrive"); err != nil {
		return 0, err
	}
	if limit < 0 {
		return 0, &driver.Error{
			Code: driver.ErrInvalid, Op: "redrive", Queue: h.Name, Field: "limit",
			Detail: fmt.Sprintf("%d is negative; 0 means no limit", limit),
		}
	}
	dead, err := h.findDead(ctx, ids)
	if err != nil {
		return 0, h.outcome(err, "redrive")
	}
	var held error // why dead letters stay whose unique keys other messages hold
	for len(dead) > 0 && (limit == 0 || moved < limit) {
		most := deadLettersPage
		if limit > 0 {
			most = min(most, limit-moved)
		}
		page := leading(dead, most)
		dead = dead[len(page):]
		ids := make([]string, len(page))
		for i := range page {
			ids[i] = page[i].id
		}
		n, err := page[0].shard.Redrive(ctx, ids)
		moved += n
		switch {
		case errors.Is(err, driver.ErrConflict): // the others are redriven first
			held = cmp.Or(held, err)
		case err != nil:
			return moved, h.outcome(err, "redrive")
		}
	}
	return moved, h.outcome(held, "redrive")
}

// foundDeadLetter says where a dead letter is.
type foundDeadLetter struct {
	id     string
	deadAt float64 // wall time
	death  float64 // orders those of one shard
	shard  *shard.Shard
}

// leading returns the first dead letters of the list that are in one shard, at most
// most.
func leading(dead []foundDeadLetter, most int) []foundDeadLetter {
	n := 1
	for n < min(len(dead), most) && dead[n].shard == dead[0].shard {
		n++
	}
	return dead[:n]
}

// findDead returns the dead letters with these ids, or all if ids is nil, in the order of
// their deaths.
func (h *handle) findDead(ctx context.Context, ids []string) ([]foundDeadLetter, error) {
	all := ids == nil
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	parts, err := onShards(h.queue, func(s *shard.Shard) (found []foundDeadLetter, err error) {
		add := func(stored []shard.StoredMessage) error {
			for _, m := range stored {
				e, _ := shard.ReadEntry(m.Entry)
				found = append(found, foundDeadLetter{id: m.ID, deadAt: e.DeadAt, death: m.Score, shard: s})
			}
			return nil
		}
		if !all {
			for chunk := range slices.Chunk(ids, deadLettersPage) {
				stored, err := s.Show(ctx, "dead", true, chunk)
				if err != nil {
					return nil, err
				}
				_ = add(stored)
			}
			return found, nil
		}
		return found, s.Pages(ctx, "dead", true, add)
	})
	if err != nil {
		return nil, err
	}
	dead := slices.Concat(parts...)
	slices.SortFunc(dead, func(a, b foundDeadLetter) int {
		if a.shard == b.shard {
			return cmp.Compare(a.death, b.death)
		}
		return cmp.Or(cmp.Compare(a.deadAt, b.deadAt), cmp.Compare(a.shard.Number, b.shard.Number))
	})
	return dead, nil
}

func (h *handle) Discard(ctx context.Context, ids []string) (removed int, err error) {
	if err := h.check(ctx, "discard"); err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(ids, deadLettersPage) {
		parts, err := onShards(h.queue, func(s *shard.Shard) (int, error) { return s.Discard(ctx, chunk) })
		for _, part := range parts {
			removed += part
		}
		if err != nil {
			return removed, h.outcome(err, "discard")
		}
	}
	return removed, nil
}
