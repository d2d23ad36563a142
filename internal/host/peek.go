package host

import (
	"cmp"
	"context"
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
			err = driver.Annotate(query.Check(), h.name, "peek")
		}
		if err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		for peeked := range h.look(query) {
			if err := h.check(ctx, "peek"); err != nil {
				yield(driver.Peeked{}, err)
				return
			}
			if !yield(peeked, nil) {
				return
			}
		}
		if err := h.broken("peek"); err != nil {
			yield(driver.Peeked{}, err)
		}
	}
}

var engineStates = map[driver.State]engine.State{
	driver.StateReady:    engine.Ready,
	driver.StateDelayed:  engine.Delayed,
	driver.StateInFlight: engine.InFlight,
	driver.StateDead:     engine.Dead,
}

// stateOrder is the order in which Peek shows the states.
var stateOrder = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

// look yields the messages that match a valid query.
func (q *queue) look(query driver.Query) iter.Seq[driver.Peeked] {
	return func(yield func(driver.Peeked) bool) {
		left := query.Limit
		for _, state := range stateOrder {
			if len(query.States) > 0 && !slices.Contains(query.States, state) {
				continue
			}
			if query.Reason != "" && state != driver.StateDead {
				continue
			}
			for peeked := range q.lookAt(state, query, left) {
				if !yield(peeked) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
		}
	}
}

// lookAt yields the matches in one state: ready ones shard by shard, the others by due
// time or time of death. At most limit are searched in each shard (0: all).
func (q *queue) lookAt(state driver.State, query driver.Query, limit int) iter.Seq[driver.Peeked] {
	var shards []*pages[driver.Peeked]
	for _, sh := range q.shards {
		shards = append(shards, &pages[driver.Peeked]{
			shard: sh, state: engineStates[state], limit: limit,
			show: func(e *engine.Entry, now engine.Moment) (driver.Peeked, bool) {
				if !matches(e, query, now) {
					return driver.Peeked{}, false
				}
				return q.peeked(state, e, now), true
			},
		})
	}
	return merge(shards, func(a, b *driver.Peeked) bool {
		return cmp.Or(a.DueAt.Compare(b.DueAt), a.DeadAt.Compare(b.DeadAt)) < 0
	})
}

// matches reports whether a message matches all conditions of a query. Filters of
// mailbox peek and mailbox dlq end here; the filter of package deadletter is
// deadletter.Filter.
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
		if e.Is(engine.Wall) {
			p.DueAt = wallTime(int64(e.Due))
		}
		fallthrough
	default:
		fill(&p.Message, e)
		if e.Extra != nil {
			p.Redrives = e.Extra.Redrives
		}
	}
	return p
}
