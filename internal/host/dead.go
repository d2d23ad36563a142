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

func (h *handle) DeadLetter(ctx context.Context, burials []driver.DeadLetterRequest) error {
	if err := h.check(ctx, "dead-letter"); err != nil {
		return err
	}
	settling := settling{run: run{queue: h.queue}, op: "dead-letter", length: len(burials)}
	for i, burial := range burials {
		if !burial.Reason.Valid() {
			settling.fail(i, &driver.Error{
				Code: driver.ErrInvalid, Op: "dead-letter", Queue: h.name, Field: "Reason",
				Detail: fmt.Sprintf("%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", burial.Reason),
			})
			continue
		}
		if delivery, ok := settling.locate(i, burial.Receipt); ok {
			now := h.now()
			e, err := settling.shard.engine.StageDeadLetter(now, delivery, burial.Reason,
				driver.TrimCause(burial.Error), driver.TrimCause(burial.ErrorType))
			settling.staged(i, now, e, err, burial.Receipt)
		}
	}
	return settling.finish(h.frees())
}

func (h *handle) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		if err := h.check(ctx, "dead-letters"); err != nil {
			yield(driver.DeadLetter{}, err)
			return
		}
		for peeked := range h.look(driver.Query{States: []driver.State{driver.StateDead}}) {
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
	for limit == 0 || moved < limit {
		if err := h.check(ctx, "redrive"); err != nil {
			return moved, err
		}
		round := redriveRound
		if limit > 0 {
			round = min(round, limit-moved)
		}
		letters := collect(found, round)
		if len(letters) == 0 {
			break
		}
		n, err := h.redriveAll(letters, ids != nil)
		moved += n
		if err != nil {
			return moved, h.named(err, "redrive")
		}
	}
	h.refresh()
	return moved, h.broken("redrive")
}

// redriveRound is how many letters are redriven with one wait for a journal.
const redriveRound = 256

// collect takes up to n from a sequence.
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

// redriveAll redrives letters until one does not fit. One that is damaged is
// passed over, unless it was asked for by name.
func (h *handle) redriveAll(letters []foundLetter, named bool) (moved int, err error) {
	oneByOne := h.journal != nil && makesRoomByItself(&h.settings.Load().config)
	run := run{queue: h.queue}
	var refused error
	for _, found := range letters {
		run.use(found.shard)
		letter := found.shard.engine.FindDead(found.id)
		if letter == nil {
			continue
		}
		err := h.redrive(&run, letter)
		if errors.Is(err, driver.ErrFull) {
			refused = h.noRoomLocked(found.shard)
			break
		}
		if named && errors.Is(err, driver.ErrIntegrity) {
			refused = &driver.Error{Code: driver.ErrIntegrity, MessageID: found.id, Detail: "is damaged; it can only be discarded"}
			break
		}
		if err == nil {
			moved++
		}
		if oneByOne {
			if err := run.finish(); err != nil {
				return moved, err
			}
		}
	}
	if err := run.finish(); err != nil {
		return 0, err
	}
	return moved, refused
}

// redrive sends a dead letter of the shard in use back to the queue.
func (q *queue) redrive(r *run, letter *engine.Entry) error {
	now := q.now()
	gone := *letter
	if q.journal == nil {
		return r.shard.engine.Redrive(now, letter)
	}
	e, err := r.shard.engine.StageRedrive(now, letter)
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
			if letter := sh.engine.FindDead(id); letter != nil {
				sh.engine.Discard(h.now(), letter)
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

// foundLetter says where a dead letter is.
type foundLetter struct {
	id     string
	deadAt int64
	death  uint64 // orders those of one shard that died at the same time
	shard  *shard
}

func (l *foundLetter) before(other *foundLetter) bool {
	return cmp.Or(cmp.Compare(l.deadAt, other.deadAt), cmp.Compare(l.shard.id.Shard, other.shard.id.Shard),
		cmp.Compare(l.death, other.death)) < 0
}

// findDead yields the dead letters with these ids, or all that there are by now
// if ids is nil, in the order in which they died. No shard is locked between
// one and the next, and none may be while it looks.
func (q *queue) findDead(ids []string) iter.Seq[foundLetter] {
	if ids != nil {
		return slices.Values(q.findDeadIDs(ids))
	}
	var shards []*pages[foundLetter]
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.Advance(q.now())
		until := sh.engine.Deaths()
		sh.unlock()
		shards = append(shards, &pages[foundLetter]{
			shard: sh, state: engine.Dead,
			show: func(e *engine.Entry, _ engine.Moment) (foundLetter, bool) {
				return sh.found(e), e.Place <= until
			},
		})
	}
	return merge(shards, (*foundLetter).before)
}

func (sh *shard) found(e *engine.Entry) foundLetter {
	return foundLetter{id: e.ID, deadAt: e.Extra.DeadAt, death: e.Place, shard: sh}
}

func (q *queue) findDeadIDs(ids []string) []foundLetter {
	var found []foundLetter
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.Advance(q.now())
		for _, id := range ids {
			if letter := sh.engine.FindDead(id); letter != nil {
				found = append(found, sh.found(letter))
			}
		}
		sh.unlock()
	}
	slices.SortFunc(found, func(a, b foundLetter) int {
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
