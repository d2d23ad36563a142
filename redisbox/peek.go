package redisbox

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
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

func (h *handle) checkQuery(query driver.Query) error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "peek", Queue: h.Name, Field: field, Detail: detail}
	}
	if query.Limit < 0 {
		return invalid("Limit", fmt.Sprintf("%d is negative; 0 means no limit", query.Limit))
	}
	if query.OlderThan < 0 {
		return invalid("OlderThan", fmt.Sprintf("%v is negative", query.OlderThan))
	}
	if query.Reason != "" && !query.Reason.Valid() {
		return invalid("Reason", fmt.Sprintf("%q is not a reason; want max_attempts, fatal, parse, integrity, expired or operator", query.Reason))
	}
	for _, state := range query.States {
		if !slices.Contains(stateOrder, state) {
			return invalid("States", fmt.Sprintf("%q is not a state; want ready, delayed, in flight or dead", state))
		}
	}
	return nil
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
