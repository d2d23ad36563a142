package redisbox

import (
	"context"
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/cursor"
	"github.com/mailboxmq/mailbox/internal/ident"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

func (h *handle) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		err := h.check(ctx, "peek")
		if err == nil {
			err = driver.Annotate(query.Check(), h.Name, "peek")
		}
		if err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		if query.Last > 0 {
			yield(driver.Peeked{}, &driver.Error{Code: driver.ErrUnsupported, Op: "peek", Queue: h.Name, Field: "Last", Detail: "Redis has no order that can be read from its end"})
			return
		}
		marks, atEnd := make([]shard.PeekMark, len(h.Shards)), false
		if query.Cursor != nil {
			if err := readMarks(marks, *query.Cursor); err != nil {
				yield(driver.Peeked{}, driver.Annotate(err, h.Name, "peek"))
				return
			}
			defer func() {
				if *query.Cursor = ""; !atEnd {
					*query.Cursor = cursorOf(marks)
				}
			}()
		}
		shown := make(map[string]bool) // a message that changes its state is shown once
		for _, state := range stateOrder {
			if len(query.States) > 0 && !slices.Contains(query.States, state) {
				continue
			}
			if query.Reason != "" && state != driver.StateDead {
				continue
			}
			for seen, err := range h.inState(ctx, state, query.ID, marks) {
				if err == nil {
					err = h.check(ctx, "peek")
				}
				if err != nil {
					yield(driver.Peeked{}, h.outcome(err, "peek"))
					return
				}
				if shown[seen.ID] || !seen.Matches(query) {
					continue
				}
				shown[seen.ID] = true
				if query.Cursor != nil {
					marks[slices.Index(h.Shards, seen.Shard)] = seen.Mark
				}
				if !yield(seen.Peeked, nil) || len(shown) == query.Limit {
					return
				}
			}
		}
		atEnd = true
	}
}

// marksEach is how many numbers of a cursor are the mark of a shard: the score, and the id in two.
const marksEach = 3

// cursorOf returns the cursor of a peek that is behind these marks.
func cursorOf(marks []shard.PeekMark) string {
	var numbers []uint64
	for _, mark := range marks {
		id, _ := ident.Parse(mark.ID) // that of a damaged message may be none
		numbers = append(numbers, math.Float64bits(mark.Score), binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:]))
	}
	return cursor.Encode(numbers)
}

// readMarks reads a cursor. Codes: ErrInvalid.
func readMarks(marks []shard.PeekMark, text string) error {
	numbers, err := cursor.Decode(text, marksEach*len(marks))
	if err != nil || numbers == nil {
		return err
	}
	for i := range marks {
		n := numbers[marksEach*i:]
		if score := math.Float64frombits(n[0]); score > 0 {
			var id ulid.ULID
			binary.BigEndian.PutUint64(id[:8], n[1])
			binary.BigEndian.PutUint64(id[8:], n[2])
			marks[i] = shard.PeekMark{Score: min(score, 1<<53), ID: id.String()}
		}
	}
	return nil
}

// stateOrder is the order in which Peek shows the states.
var stateOrder = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

// inState yields the messages in one state, or only the one with this id: ready ones in
// order, the others by time. It begins behind the marks of the shards, if there are any.
func (h *handle) inState(ctx context.Context, state driver.State, id string, marks []shard.PeekMark) iter.Seq2[shard.PeekedMessage, error] {
	all := make([]iter.Seq2[shard.PeekedMessage, error], len(h.Shards))
	for i, s := range h.Shards {
		var after shard.PeekMark
		if marks != nil {
			after = marks[i]
		}
		all[i] = s.PeekState(ctx, state, id, after)
	}
	switch {
	case len(all) == 1:
		return all[0]
	case state == driver.StateReady:
		return chain(all)
	}
	return shard.Merge(all)
}

// chain yields one sequence after the other.
func chain(all []iter.Seq2[shard.PeekedMessage, error]) iter.Seq2[shard.PeekedMessage, error] {
	return func(yield func(shard.PeekedMessage, error) bool) {
		for _, sequence := range all {
			for seen, err := range sequence {
				if !yield(seen, err) || err != nil {
					return
				}
			}
		}
	}
}
