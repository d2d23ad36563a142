package faulty

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var peekFaults = []Saboteur{
	{Name: "counts-looking-as-a-delivery", Breaks: "CNT-2",
		What: "A peek adds to the delivery count of the next message.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			_, _ = q.Receive(ctx, driver.ReceiveRequest{Max: 1})
			return q.Peek(ctx, query)
		}}},
	{Name: "leases-what-is-looked-at", Breaks: "CNT-2",
		What: "A peeked message is in flight for a second.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			return rearranged(q.Peek(ctx, query), func([]driver.Peeked) {
				_, _ = q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
			})
		}}},
	{Name: "does-not-show-the-leased", Breaks: "CNT-2",
		What: "A peek skips messages in flight.",
		on:   hooks{peek: filterSeen(func(seen *driver.Peeked) bool { return seen.State != driver.StateInFlight })}},
	{Name: "limits-before-it-selects", Breaks: "CNT-2",
		What: "The limit of a peek counts messages that do not match.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			if query.Limit <= 0 || len(query.Attributes) == 0 {
				return q.Peek(ctx, query)
			}
			return filter(q.Peek(ctx, driver.Query{States: query.States, Limit: query.Limit}), func(seen *driver.Peeked) bool {
				return matching(seen.Attributes, query.Attributes) == len(query.Attributes)
			})
		}}},
	{Name: "ignores-the-limit-of-a-peek", Breaks: "CNT-2",
		What: "A peek ignores its limit.",
		on:   hooks{peek: alterQuery(func(query *driver.Query) { query.Limit = min(query.Limit, 0) })}},
	{Name: "ignores-age", Breaks: "CNT-2",
		What: "A peek for old messages shows young ones too.",
		on:   hooks{peek: alterQuery(func(query *driver.Query) { query.OlderThan = min(query.OlderThan, 0) })}},
	{Name: "matches-any-attribute", Breaks: "CNT-2",
		What: "A peek for several attributes shows messages that have one of them.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			wanted := query.Attributes
			if len(wanted) < 2 {
				return q.Peek(ctx, query)
			}
			query.Attributes = nil
			return filter(q.Peek(ctx, query), func(seen *driver.Peeked) bool { return matching(seen.Attributes, wanted) > 0 })
		}}},
	{Name: "shows-the-living-by-reason", Breaks: "CNT-2",
		What: "A peek for a dead-letter reason shows messages that are not dead.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			return func(yield func(driver.Peeked, error) bool) {
				if query.Reason.Valid() && len(query.States) == 0 {
					for _, seen := range q.peeked(ctx, driver.StateReady) {
						if !yield(seen, nil) {
							return
						}
					}
				}
				q.Peek(ctx, query)(yield)
			}
		}}},
	{Name: "shows-the-ready-backwards", Breaks: "CNT-2",
		What: "A peek shows ready messages newest first.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			return rearranged(q.Peek(ctx, query), func(all []driver.Peeked) {
				slices.SortStableFunc(all, func(a, b driver.Peeked) int { return order(a.State == driver.StateReady, b.State == driver.StateReady) })
				ready := 0
				for ready < len(all) && all[ready].State == driver.StateReady {
					ready++
				}
				slices.Reverse(all[:ready])
			})
		}}},
	{Name: "shows-no-due-time", Breaks: "CNT-2",
		What: "A peek does not show when a message in flight becomes ready.",
		on:   hooks{peek: filterSeen(func(seen *driver.Peeked) bool { seen.DueAt = time.Time{}; return true })}},
	{Name: "takes-any-query", Breaks: "CNT-2",
		What: "A query for an unknown state finds nothing instead of being refused.",
		on: hooks{peek: alterQuery(func(query *driver.Query) {
			query.States = slices.DeleteFunc(slices.Clone(query.States), func(state driver.State) bool { return state == "limbo" })
		})}},
	{Name: "holds-its-lock-while-looking", Breaks: "CNT-2", Hangs: true,
		What: "Receives block during a peek.",
		on: hooks{
			peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
				return func(yield func(driver.Peeked, error) bool) {
					lock := state[sync.Mutex](q)
					lock.Lock()
					defer lock.Unlock()
					q.Peek(ctx, query)(yield)
				}
			},
			receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
				lock := state[sync.Mutex](q)
				lock.Lock()
				lock.Unlock() //nolint:staticcheck // it only waits for the lock
				return q.Receive(ctx, req)
			},
		}},
	{Name: "ignores-the-cursor-of-a-peek", Breaks: "CNT-2",
		What: "A peek with a cursor begins at the beginning.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			if query.Cursor != nil && query.Check() == nil && len(*query.Cursor) < 1<<10 && *query.Cursor != "nonsense" {
				*query.Cursor = ""
			}
			return q.Peek(ctx, query)
		}}},
	{Name: "skips-a-message-between-peeks", Breaks: "CNT-2",
		What: "A cursor is one message behind what a peek has yielded.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			if query.Cursor == nil || query.Limit == 0 {
				return q.Peek(ctx, query)
			}
			shown := query.Limit
			query.Limit++
			return filter(q.Peek(ctx, query), func(*driver.Peeked) bool { shown--; return shown >= 0 })
		}}},
	{Name: "begins-last-messages-at-the-beginning", Breaks: "CNT-2",
		What: "A peek at the last messages shows the first ones.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			if query.Last > 0 && query.Check() == nil {
				query.Limit, query.Last = query.Last, 0
			}
			return q.Peek(ctx, query)
		}}},
	{Name: "shows-no-error-type", Breaks: "CNT-2", Also: []string{"DLQ-4"}, Rare: true,
		What: "A peek at a dead letter does not show its error type.",
		on:   hooks{peek: filterSeen(func(seen *driver.Peeked) bool { seen.ErrorType = ""; return true })}},
}

// filterSeen changes the results of queries; keep reports whether to show a message.
func filterSeen(keep func(*driver.Peeked) bool) peekFunc {
	return func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
		return filter(q.Peek(ctx, query), keep)
	}
}

// matching returns how many of the wanted attributes there are.
func matching(attributes, wanted map[string]string) (n int) {
	for key, value := range wanted {
		if has, ok := attributes[key]; ok && has == value {
			n++
		}
	}
	return n
}

// order compares so that what is first comes first.
func order(first, second bool) int {
	switch {
	case first && !second:
		return -1
	case second && !first:
		return 1
	}
	return 0
}
