package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	if err := h.check(ctx, "dead-letter"); err != nil {
		return err
	}
	batch := h.stageDeadLetters(requests)
	return batch.finish(h.frees())
}

func (h *handle) stageDeadLetters(requests []driver.DeadLetterRequest) settleBatch {
	batch := settleBatch{run: run{queue: h.queue}, op: "dead-letter", length: len(requests)}
	for i, request := range requests {
		if !request.Reason.Valid() {
			batch.fail(i, &driver.Error{
				Code: driver.ErrInvalid, Op: "dead-letter", Queue: h.name, Field: "Reason",
				Detail: fmt.Sprintf("%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", request.Reason),
			})
			continue
		}
		if delivery, ok := batch.locate(i, request.Receipt); ok {
			e, err := batch.shard.engine.StageDeadLetter(batch.now, delivery, request.Reason,
				driver.TrimCause(request.Error), driver.TrimCause(request.ErrorType))
			batch.staged(i, e, err, request.Receipt)
		}
	}
	return batch
}

func (h *handle) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		if err := h.check(ctx, "dead-letters"); err != nil {
			yield(driver.DeadLetter{}, err)
			return
		}
		for peeked := range h.look(ctx, driver.Query{States: []driver.State{driver.StateDead}}, nil) {
			if err := h.check(ctx, "dead-letters"); err != nil {
				yield(driver.DeadLetter{}, err)
				return
			}
			if !yield(peeked.DeadLetter, nil) {
				return
			}
		}
		if err := h.broken("dead-letters"); err != nil {
			yield(driver.DeadLetter{}, err)
		} else if err := h.check(ctx, "dead-letters"); err != nil { // look ended early
			yield(driver.DeadLetter{}, err)
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
	found, stop := iter.Pull(h.findDead(ids))
	defer stop()
	var held error // why dead letters stay whose unique keys other messages hold
	for limit == 0 || moved < limit {
		if err := h.check(ctx, "redrive"); err != nil {
			return moved, err
		}
		round := redriveRound
		if limit > 0 {
			round = min(round, limit-moved)
		}
		next := collect(found, round)
		if len(next) == 0 {
			break
		}
		n, err := h.redriveAll(next, ids != nil)
		moved += n
		switch {
		case errors.Is(err, driver.ErrConflict): // the others are redriven first
			held = cmp.Or(held, err)
		case err != nil:
			return moved, h.named(err, "redrive")
		}
	}
	h.serve(nil)
	return moved, cmp.Or(h.broken("redrive"), held)
}

// redriveRound is how many dead letters are redriven with one wait for the journal.
const redriveRound = 256

// collect takes up to n elements from a sequence.
func collect[T any](next func() (T, bool), n int) []T {
	var taken []T
	for len(taken) < n {
		one, ok := next()
		if !ok {
			break
		}
		taken = append(taken, one)
	}
	return taken
}

// redriveAll redrives dead letters until one does not fit. A damaged one is skipped,
// unless it was requested by id. Those whose unique key another message holds are left, and
// ErrConflict is returned for the first of them.
func (h *handle) redriveAll(found []foundDeadLetter, named bool) (moved int, err error) {
	config := &h.settings.Load().config
	run := run{queue: h.queue}
	var refused, held error
	for _, one := range found {
		run.use(one.shard)
		dead := one.shard.engine.FindDead(one.id)
		if dead == nil {
			continue
		}
		err := h.redrive(&run, dead)
		if errors.Is(err, driver.ErrConflict) {
			held = cmp.Or(held, err)
			continue
		}
		if err == error(driver.ErrFull) {
			err = h.noRoomLocked(one.shard, 1)
		}
		if errors.Is(err, driver.ErrFull) {
			refused = err
			break
		}
		if named && errors.Is(err, driver.ErrIntegrity) {
			refused = &driver.Error{Code: driver.ErrIntegrity, MessageID: one.id, Detail: "is damaged; it can only be discarded"}
			break
		}
		if err == nil {
			moved++
		}
		freesKeys := retentionFreesKeys(config) && one.shard.engine.KeysHeld() > 0
		if h.journal != nil && (retentionMakesRoom(config) || freesKeys) {
			if err := run.finish(false); err != nil {
				return moved, err
			}
		}
	}
	if err := run.finish(false); err != nil {
		return 0, err
	}
	return moved, cmp.Or(refused, held)
}

// redrive makes a dead letter of the shard in use ready again. It returns the bare ErrFull if
// the message does not fit.
func (q *queue) redrive(r *run, dead *engine.Entry) error {
	gone := *dead
	if gone.Extra != nil && gone.Extra.Unique != nil && r.shard.engine.Room(r.now, int(gone.Size)) == nil {
		if err := r.shard.keyHeldLocked(r.now, "redrive", gone.ID, gone.Extra); err != nil {
			return err
		}
	}
	if q.journal == nil {
		return r.shard.engine.Redrive(r.now, dead)
	}
	e, err := r.shard.engine.StageRedrive(r.now, dead)
	if err != nil {
		return err
	}
	q.journal.Lock()
	q.journal.Discarded(r.shard.id, &gone)
	q.journal.Sent(r.shard.id, e)
	q.journal.Unlock()
	r.hold(e)
	return nil
}

func (h *handle) Discard(ctx context.Context, ids []string) (removed int, err error) {
	if err := h.check(ctx, "discard"); err != nil {
		return 0, err
	}
	for _, id := range ids {
		for _, sh := range h.shards {
			sh.lock()
			sh.engine.Advance(h.now())
			if dead := sh.engine.FindDead(id); dead != nil {
				sh.engine.Discard(h.now(), dead)
				removed++
			}
			sh.unlock()
		}
	}
	if err := h.broken("discard"); err != nil {
		return removed, err
	}
	return removed, h.named(h.backend.barrier(), "discard")
}

func (h *handle) PurgeDead(ctx context.Context) (removed int, err error) {
	return h.clear(ctx, "purge dead letters", (*engine.Shard).PurgeDead, Journal.DeadPurged)
}

// foundDeadLetter is the location of a dead letter.
type foundDeadLetter struct {
	id     string
	deadAt int64
	death  uint64 // orders dead letters of one shard that died at the same time
	shard  *shard
}

func (l *foundDeadLetter) before(other *foundDeadLetter) bool {
	return cmp.Or(cmp.Compare(l.deadAt, other.deadAt), cmp.Compare(l.shard.id.Shard, other.shard.id.Shard),
		cmp.Compare(l.death, other.death)) < 0
}

// findDead yields the dead letters with these ids, or all present ones if ids is nil,
// in the order in which they died. It locks shards one after the other while it
// searches, and none while it yields.
func (q *queue) findDead(ids []string) iter.Seq[foundDeadLetter] {
	if ids != nil {
		return slices.Values(q.findDeadIDs(ids))
	}
	var shards []*pages[foundDeadLetter]
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.Advance(q.now())
		until := sh.engine.Deaths()
		sh.unlock()
		shards = append(shards, &pages[foundDeadLetter]{
			shard: sh, state: engine.Dead,
			show: func(e *engine.Entry, _ engine.Moment) (foundDeadLetter, bool) {
				return sh.found(e), e.Place <= until
			},
		})
	}
	return merge(shards, (*foundDeadLetter).before)
}

func (sh *shard) found(e *engine.Entry) foundDeadLetter {
	return foundDeadLetter{id: e.ID, deadAt: e.Extra.DeadAt, death: e.Place, shard: sh}
}

func (q *queue) findDeadIDs(ids []string) []foundDeadLetter {
	var found []foundDeadLetter
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.Advance(q.now())
		for _, id := range ids {
			if dead := sh.engine.FindDead(id); dead != nil {
				found = append(found, sh.found(dead))
			}
		}
		sh.unlock()
	}
	slices.SortFunc(found, func(a, b foundDeadLetter) int {
		switch {
		case a.before(&b):
			return -1
		case b.before(&a):
			return 1
		}
		return 0
	})
	return found
}
