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
	{
		Name: "counts-looking-as-a-delivery", Breaks: "CNT-2",
		What: "A peek adds to the delivery count of the next message.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return countsLooking{q} }),
	},
	{
		Name: "leases-what-is-looked-at", Breaks: "CNT-2",
		What: "A peeked message is in flight for a second.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return leasesSeen{q} }),
	},
	{
		Name: "does-not-show-the-leased", Breaks: "CNT-2",
		What: "A peek skips messages in flight.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSeen{q, nil, func(seen *driver.Peeked) bool { return seen.State != driver.StateInFlight }}
		}),
	},
	{
		Name: "limits-before-it-selects", Breaks: "CNT-2",
		What: "The limit of a peek counts messages that do not match.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return limitsFirst{q} }),
	},
	{
		Name: "ignores-the-limit-of-a-peek", Breaks: "CNT-2",
		What: "A peek ignores its limit.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSeen{q, func(query *driver.Query) { query.Limit = min(query.Limit, 0) }, nil}
		}),
	},
	{
		Name: "ignores-age", Breaks: "CNT-2",
		What: "A peek for old messages shows young ones too.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSeen{q, func(query *driver.Query) { query.OlderThan = min(query.OlderThan, 0) }, nil}
		}),
	},
	{
		Name: "matches-any-attribute", Breaks: "CNT-2",
		What: "A peek for several attributes shows messages that have one of them.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return matchesAny{q} }),
	},
	{
		Name: "shows-the-living-by-reason", Breaks: "CNT-2",
		What: "A peek for a dead-letter reason shows messages that are not dead.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return showsLiving{q} }),
	},
	{
		Name: "shows-the-ready-backwards", Breaks: "CNT-2",
		What: "A peek shows ready messages newest first.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return showsBackwards{q} }),
	},
	{
		Name: "shows-no-due-time", Breaks: "CNT-2",
		What: "A peek does not show when a message in flight becomes ready.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSeen{q, nil, func(seen *driver.Peeked) bool { seen.DueAt = time.Time{}; return true }}
		}),
	},
	{
		Name: "takes-any-query", Breaks: "CNT-2",
		What: "A query for an unknown state finds nothing instead of being refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSeen{q, func(query *driver.Query) {
				query.States = slices.DeleteFunc(slices.Clone(query.States), func(state driver.State) bool { return state == "limbo" })
			}, nil}
		}),
	},
	{
		Name: "holds-its-lock-while-looking", Breaks: "CNT-2", Hangs: true,
		What: "Receives block during a peek.",
		Wrap: perQueue(func(q passThrough, lock *sync.Mutex) driver.Queue { return locksWhileLooking{q, lock} }),
	},
	{
		Name: "shows-no-error-type", Breaks: "CNT-2", Also: []string{"DLQ-4"}, Rare: true,
		What: "A peek at a dead letter does not show its error type.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesSeen{q, nil, func(seen *driver.Peeked) bool { seen.ErrorType = ""; return true }}
		}),
	},
}

type countsLooking struct{ passThrough }

func (q countsLooking) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	_, _ = q.Queue.Receive(ctx, driver.ReceiveRequest{Max: 1})
	return q.Queue.Peek(ctx, query)
}

type leasesSeen struct{ passThrough }

func (q leasesSeen) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		var seen []driver.Peeked
		for message, err := range q.Queue.Peek(ctx, query) {
			if err != nil {
				yield(message, err)
				return
			}
			seen = append(seen, message)
		}
		_, _ = q.Queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
		for _, message := range seen {
			if !yield(message, nil) {
				return
			}
		}
	}
}

type locksWhileLooking struct {
	passThrough
	lock *sync.Mutex
}

func (q locksWhileLooking) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		q.lock.Lock()
		defer q.lock.Unlock()
		q.Queue.Peek(ctx, query)(yield)
	}
}

func (q locksWhileLooking) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.lock.Lock()
	q.lock.Unlock() //nolint:staticcheck // it only waits for the lock
	return q.Queue.Receive(ctx, req)
}

// changesSeen changes queries and their results; keep reports whether to show a message.
type changesSeen struct {
	passThrough
	change func(*driver.Query)
	keep   func(*driver.Peeked) bool
}

func (q changesSeen) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	if q.change != nil {
		q.change(&query)
	}
	return func(yield func(driver.Peeked, error) bool) {
		for seen, err := range q.Queue.Peek(ctx, query) {
			if err == nil && q.keep != nil && !q.keep(&seen) {
				continue
			}
			if !yield(seen, err) {
				return
			}
		}
	}
}

type limitsFirst struct{ passThrough }

func (q limitsFirst) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	limit := query.Limit
	if limit <= 0 || len(query.Attributes) == 0 {
		return q.Queue.Peek(ctx, query)
	}
	return func(yield func(driver.Peeked, error) bool) {
		for seen, err := range q.Queue.Peek(ctx, driver.Query{States: query.States, Limit: limit}) {
			if err == nil && !hasAll(seen.Attributes, query.Attributes) {
				continue
			}
			if !yield(seen, err) {
				return
			}
		}
	}
}

func hasAll(attributes, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, ok := attributes[key]; !ok || has != value {
			return false
		}
	}
	return true
}

type matchesAny struct{ passThrough }

func (q matchesAny) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	wanted := query.Attributes
	if len(wanted) < 2 {
		return q.Queue.Peek(ctx, query)
	}
	query.Attributes = nil
	return func(yield func(driver.Peeked, error) bool) {
		for seen, err := range q.Queue.Peek(ctx, query) {
			some := false
			for key, value := range wanted {
				some = some || seen.Attributes[key] == value
			}
			if (some || err != nil) && !yield(seen, err) {
				return
			}
		}
	}
}

type showsLiving struct{ passThrough }

func (q showsLiving) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		if query.Reason.Valid() && len(query.States) == 0 {
			for _, seen := range q.peeked(ctx, driver.StateReady) {
				if !yield(seen, nil) {
					return
				}
			}
		}
		q.Queue.Peek(ctx, query)(yield)
	}
}

type showsBackwards struct{ passThrough }

func (q showsBackwards) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		var ready, rest []driver.Peeked
		for seen, err := range q.Queue.Peek(ctx, query) {
			switch {
			case err != nil:
				yield(seen, err)
				return
			case seen.State == driver.StateReady:
				ready = append(ready, seen)
			default:
				rest = append(rest, seen)
			}
		}
		slices.Reverse(ready)
		for _, seen := range append(ready, rest...) {
			if !yield(seen, nil) {
				return
			}
		}
	}
}
