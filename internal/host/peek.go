package host

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		err := h.check(ctx, "peek")
		if err == nil {
			err = h.checkQuery(query)
		}
		if err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		for _, peeked := range h.look(query) {
			if err := h.check(ctx, "peek"); err != nil {
				yield(driver.Peeked{}, err)
				return
			}
			if !yield(peeked, nil) {
				return
			}
		}
	}
}

func (h *handle) checkQuery(query driver.Query) error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "peek", Queue: h.name, Field: field, Detail: detail}
	}
	if query.Limit < 0 {
		return invalid("Limit", fmt.Sprintf("%d is negative; 0 means no limit", query.Limit))
	}
	if query.OlderThan < 0 {
		return invalid("OlderThan", fmt.Sprintf("%v is negative", query.OlderThan))
	}
	if query.Reason != "" && !query.Reason.Valid() {
		return invalid("Reason", fmt.Sprintf("%q is not one of the reasons of package driver", query.Reason))
	}
	for _, state := range query.States {
		if _, ok := engineStates[state]; !ok {
			return invalid("States", fmt.Sprintf("%q is not one of the states of package driver", state))
		}
	}
	return nil
}

var engineStates = map[driver.State]engine.State{
	driver.StateReady:    engine.Ready,
	driver.StateDelayed:  engine.Delayed,
	driver.StateInFlight: engine.InFlight,
	driver.StateDead:     engine.Dead,
}

// stateOrder is the order in which Peek shows the states.
var stateOrder = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

// look collects what matches a valid query.
func (q *queue) look(query driver.Query) []driver.Peeked {
	var found []driver.Peeked
	for _, state := range stateOrder {
		if len(query.States) > 0 && !slices.Contains(query.States, state) {
			continue
		}
		if query.Reason != "" && state != driver.StateDead {
			continue
		}
		limit := 0
		if query.Limit > 0 {
			if limit = query.Limit - len(found); limit == 0 {
				break
			}
		}
		found = append(found, q.lookAt(state, query, limit)...)
	}
	return found
}

// lookAt collects up to limit matches (0: all) in one state.
func (q *queue) lookAt(state driver.State, query driver.Query, limit int) []driver.Peeked {
	var found []driver.Peeked
	for _, sh := range q.shards {
		inShard := 0
		sh.lock()
		now := q.now()
		sh.engine.Advance(now)
		for e := range sh.engine.InState(engineStates[state]) {
			if !matches(e, query, now) {
				continue
			}
			found = append(found, q.peeked(state, e, now))
			if inShard++; inShard == limit {
				break
			}
		}
		sh.unlock()
	}
	if len(q.shards) > 1 && state != driver.StateReady {
		slices.SortStableFunc(found, func(a, b driver.Peeked) int {
			return cmp.Or(a.DueAt.Compare(b.DueAt), a.DeadAt.Compare(b.DeadAt))
		})
	}
	if limit > 0 && len(found) > limit {
		found = found[:limit]
	}
	return found
}

func matches(e *engine.Entry, query driver.Query, now engine.Moment) bool {
	if query.ID != "" && e.ID != query.ID {
		return false
	}
	if query.OlderThan > 0 && now.Wall-e.EnqueuedAt < int64(query.OlderThan) {
		return false
	}
	if query.Reason != "" && e.Extra.Reason != query.Reason {
		return false
	}
	for key, value := range query.Attributes {
		if e.Extra == nil || e.Extra.Attributes == nil {
			return false
		}
		if got, ok := e.Extra.Attributes[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func (q *queue) peeked(state driver.State, e *engine.Entry, now engine.Moment) driver.Peeked {
	p := driver.Peeked{State: state}
	switch state {
	case driver.StateDead:
		p.DeadLetter = deadLetter(q.name, e)
	case driver.StateDelayed, driver.StateInFlight:
		p.DueAt = time.Unix(0, now.Wall+int64(e.Due-now.At)).UTC()
		fallthrough
	default:
		fill(&p.Message, e)
		if e.Extra != nil {
			p.Redrives = e.Extra.Redrives
		}
	}
	return p
}

func sortByDeath(found []foundLetter) {
	slices.SortFunc(found, func(a, b foundLetter) int {
		return cmp.Or(cmp.Compare(a.deadAt, b.deadAt), cmp.Compare(a.shard.id.Shard, b.shard.id.Shard), cmp.Compare(a.death, b.death))
	})
}
