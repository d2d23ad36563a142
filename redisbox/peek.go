package redisbox

import (
	"context"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
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
		shown := make(map[string]bool) // a message that changes its state is shown once
		for _, state := range stateOrder {
			if len(query.States) > 0 && !slices.Contains(query.States, state) {
				continue
			}
			if query.Reason != "" && state != driver.StateDead {
				continue
			}
			for seen, err := range h.inState(ctx, state, query.ID) {
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
				if !yield(seen.Peeked, nil) || len(shown) == query.Limit {
					return
				}
			}
		}
	}
}

// stateOrder is the order in which Peek shows the states.
var stateOrder = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

// inState yields the messages in one state, or only the one with this id: ready ones in
// order, the others by time.
func (h *handle) inState(ctx context.Context, state driver.State, id string) iter.Seq2[shard.PeekedMessage, error] {
	all := make([]iter.Seq2[shard.PeekedMessage, error], len(h.Shards))
	for i, s := range h.Shards {
		all[i] = s.PeekState(ctx, state, id)
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
