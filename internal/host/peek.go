package host

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/cursor"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		err := h.check(ctx, "peek")
		if err == nil {
			err = driver.Annotate(query.Check(), h.name, "peek")
		}
		var position []engine.Point
		if err == nil && query.Cursor != nil {
			position, err = h.position(query.States[0], *query.Cursor)
		}
		if err == nil && query.Last > 0 {
			position = h.lastPlaces(query.States[0], uint64(query.Last))
		}
		if err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		atEnd := false
		if query.Cursor != nil {
			defer func() {
				if *query.Cursor = ""; !atEnd {
					*query.Cursor = cursorOf(query.States[0], position)
				}
			}()
		}
		if query.ID != "" {
			peeked, found, wanted := h.lookFor(query)
			if wanted {
				yield(peeked, nil)
			}
			if found || h.journal == nil {
				return
			}
			// Of a message that was moved or redriven the id does not tell where a journal has it,
			// so that is searched among all.
		}
		left := query.Limit
		for peeked := range h.look(ctx, query, position) {
			left--
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
		} else if err := h.check(ctx, "peek"); err != nil { // look ended early
			yield(driver.Peeked{}, err)
		} else {
			atEnd = left != 0 || query.Limit == 0
		}
	}
}

// position reads the cursor of a peek: a point in each shard.
func (h *handle) position(state driver.State, text string) ([]engine.Point, error) {
	position := make([]engine.Point, len(h.shards))
	each := 1
	if state == driver.StateDelayed || state == driver.StateInFlight {
		each = 4
	}
	marks, err := cursor.Decode(text, each*len(position))
	if err != nil || marks == nil {
		return position, driver.Annotate(err, h.name, "peek")
	}
	for i := range position {
		p, marks := &position[i], marks[each*i:]
		if each == 1 {
			p.Place = marks[0]
			continue
		}
		p.Due, p.Alarm = engine.DuePoint{Due: engine.Instant(marks[0]), Seq: marks[1]}, engine.DuePoint{Due: engine.Instant(marks[2]), Seq: marks[3]}
	}
	return position, nil
}

// lastPlaces returns the point in each shard before its last n places of ready or dead messages.
func (h *handle) lastPlaces(state driver.State, n uint64) []engine.Point {
	position := make([]engine.Point, len(h.shards))
	for i, sh := range h.shards {
		sh.lock()
		last := sh.engine.Deaths()
		if state == driver.StateReady {
			last = sh.engine.Tail() - 1
		}
		sh.unlock()
		position[i].Place = last - min(last, n)
	}
	return position
}

// cursorOf returns the text that position reads.
func cursorOf(state driver.State, position []engine.Point) string {
	var marks []uint64
	for _, p := range position {
		switch state {
		case driver.StateDelayed, driver.StateInFlight:
			marks = append(marks, uint64(p.Due.Due), p.Due.Seq, uint64(p.Alarm.Due), p.Alarm.Seq)
		default:
			marks = append(marks, p.Place)
		}
	}
	return cursor.Encode(marks)
}

// lookFor finds the message with the id of a query in the ways that are quick, and reports whether
// it matches.
func (q *queue) lookFor(query driver.Query) (peeked driver.Peeked, found, wanted bool) {
	for _, sh := range q.shards {
		if peeked, found, wanted = sh.peekID(query); found {
			break
		}
	}
	return peeked, found, wanted
}

// peekID finds the message with the id of a query, and reports whether it matches.
func (sh *shard) peekID(query driver.Query) (peeked driver.Peeked, found, wanted bool) {
	sh.lock()
	defer sh.unlock()
	now := sh.queue.now()
	e, in := sh.engine.Find(now, query.ID)
	if e == nil {
		e, in = sh.engine.FindDead(query.ID), engine.Dead
	}
	if e == nil {
		return peeked, false, false
	}
	for _, state := range stateOrder {
		if engineStates[state] == in {
			return sh.queue.peeked(state, e, now), true, looksIn(&query, state) && matches(e, query, now)
		}
	}
	return peeked, false, false // it is being written
}

var engineStates = map[driver.State]engine.State{
	driver.StateReady:    engine.Ready,
	driver.StateDelayed:  engine.Delayed,
	driver.StateInFlight: engine.InFlight,
	driver.StateDead:     engine.Dead,
}

// stateOrder is the order in which Peek shows the states.
var stateOrder = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

// look yields the messages that match a valid query. It ends early if the context ends. If position is
// not nil, it begins there, and position is behind the latest message in each shard.
func (q *queue) look(ctx context.Context, query driver.Query, position []engine.Point) iter.Seq[driver.Peeked] {
	return func(yield func(driver.Peeked) bool) {
		left := query.Limit
		for _, state := range stateOrder {
			if !looksIn(&query, state) {
				continue
			}
			for peeked := range q.lookAt(ctx, state, query, left, position) {
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
func (q *queue) lookAt(ctx context.Context, state driver.State, query driver.Query, limit int, position []engine.Point) iter.Seq[driver.Peeked] {
	var shards []*pages[driver.Peeked]
	for i, sh := range q.shards {
		shards = append(shards, &pages[driver.Peeked]{
			ended: ctx.Done(), shard: sh, state: engineStates[state], limit: limit,
			show: func(e *engine.Entry, now engine.Moment) (driver.Peeked, bool) {
				if !matches(e, query, now) {
					return driver.Peeked{}, false
				}
				return q.peeked(state, e, now), true
			},
		})
		if position != nil {
			shards[i].last, shards[i].position = position[i], &position[i]
		}
	}
	return merge(shards, func(a, b *driver.Peeked) bool {
		return cmp.Or(a.DueAt.Compare(b.DueAt), a.DeadAt.Compare(b.DeadAt)) < 0
	})
}

// looksIn reports whether a query is about messages in a state.
func looksIn(query *driver.Query, state driver.State) bool {
	return (len(query.States) == 0 || slices.Contains(query.States, state)) && (query.Reason == "" || state == driver.StateDead)
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
