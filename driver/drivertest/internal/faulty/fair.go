package faulty

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
)

var fairFaults = []Saboteur{
	{
		Name: "is-not-fair", Breaks: "FAIR-1",
		What: "A queue with fair groups delivers in the order of sending.",
		Wrap: changesConfigAndHides(func(config *driver.Config) { config.FairGroups = false },
			func(q passThrough) driver.Queue { return claimsFair{q} }),
	},
	{
		Name: "does-not-say-fair", Breaks: "FAIR-1",
		What: "A queue with fair groups does not report it.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return deniesFair{q} }),
	},
	{
		Name: "is-fair-and-strict", Breaks: "FAIR-1",
		What: "A queue configured with fair and strict groups is accepted, and is fair.",
		Wrap: perOpener(func(b *wrapper) backend { return takesBoth{b} }),
	},
	{
		Name: "is-fair-to-messages", Breaks: "FAIR-1",
		What: "Each message of a fair group counts as a group of its own.",
		Wrap: perQueue(func(q passThrough, groups *trueGroups) driver.Queue {
			return regroups{q, groups, func(msg driver.Outgoing) string {
				if msg.Group == "" || !q.Traits().FairGroups {
					return msg.Group
				}
				return fmt.Sprint(msg.Group, " ", groups.turn.Add(1))
			}}
		}),
	},
	{
		Name: "takes-no-group-for-a-noisy-one", Breaks: "FAIR-1",
		What: "Messages without a group form one fair group.",
		Wrap: perQueue(func(q passThrough, groups *trueGroups) driver.Queue {
			return regroups{q, groups, func(msg driver.Outgoing) string {
				if msg.Group == "" && q.Traits().FairGroups {
					return "none"
				}
				return msg.Group
			}}
		}),
	},
	{
		Name: "folds-fair-groups", Breaks: "FAIR-1",
		What: "Fair groups that differ only in case share one turn.",
		Wrap: perQueue(func(q passThrough, groups *trueGroups) driver.Queue {
			return regroups{q, groups, func(msg driver.Outgoing) string {
				if q.Traits().FairGroups {
					return strings.ToLower(msg.Group)
				}
				return msg.Group
			}}
		}),
	},
	{
		Name: "ungroups-on-restart", Breaks: "FAIR-1",
		What: "After a restart waiting messages of fair groups have no group.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			if !q.Traits().FairGroups {
				return nil
			}
			return q.refill(ctx, func(seen driver.Peeked) (driver.Outgoing, bool) {
				msg := again(seen.Message)
				msg.Group = ""
				return msg, true
			}, driver.StateReady)
		}),
	},

	{
		Name: "gives-a-group-two-turns", Breaks: "FAIR-2",
		What: "A fair group gets twice as many turns as another.",
		Wrap: perQueue(func(q passThrough, groups *trueGroups) driver.Queue {
			return regroups{q, groups, func(msg driver.Outgoing) string {
				if msg.Group == "" || !q.Traits().FairGroups {
					return msg.Group
				}
				return fmt.Sprint(msg.Group, " ", groups.turn.Add(1)%2)
			}}
		}),
	},
	{
		Name: "starves-a-backlog", Breaks: "FAIR-2",
		What: "A group that was served before waits until all new groups are served.",
		Wrap: perQueue(func(q passThrough, served *table[string, bool]) driver.Queue { return prefersNewcomers{q, served} }),
	},

	{
		Name: "takes-fair-for-strict", Breaks: "FAIR-3",
		What: "A fair group is blocked while one of its messages is in flight.",
		Wrap: changesConfigAndHides(func(config *driver.Config) {
			config.StrictGroups = config.StrictGroups || config.FairGroups
			config.FairGroups = false
		}, func(q passThrough) driver.Queue { return claimsFair{q} }),
	},
	{
		Name: "returns-a-fair-group-backwards", Breaks: "FAIR-3",
		What: "A receive from a queue with fair groups returns its messages in reverse.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return reversesGroups{q} }),
	},
	{
		Name: "does-not-count-the-noisy", Breaks: "FAIR-3", Also: []string{"CNT-1"},
		What: "Messages of a fair group with a message in flight are not counted as ready.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			if q.Traits().FairGroups {
				return hidesBlocked{q}
			}
			return q
		}),
	},
	{
		Name: "shows-fair-groups-one-by-one", Breaks: "FAIR-3",
		What: "A peek at a queue with fair groups shows one group after the other.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return looksByGroup{q} }),
	},
	{
		Name: "loses-some-of-many-groups", Breaks: "FAIR-3",
		What: "Every hundredth delivery of a queue with fair groups is lost.",
		Wrap: perQueue(func(q passThrough, taken *atomic.Int64) driver.Queue { return losesHundredth{q, taken} }),
	},
}

type claimsFair struct{ passThrough }

func (q claimsFair) Traits() driver.Traits {
	traits, config := q.Queue.Traits(), q.config()
	traits.FairGroups, traits.StrictGroups = config.FairGroups, config.StrictGroups
	return traits
}

type deniesFair struct{ passThrough }

func (q deniesFair) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.FairGroups = false
	return traits
}

type takesBoth struct{ *wrapper }

func (b takesBoth) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.FairGroups {
		config.StrictGroups = false
	}
	return b.wrapper.ConfigureQueue(ctx, name, config)
}

// prefersNewcomers peeks at the other ready messages before it delivers one of a group that was
// served before.
type prefersNewcomers struct {
	passThrough
	served *table[string, bool]
}

func (q prefersNewcomers) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if !q.Traits().FairGroups || req.Max != 1 {
		return q.Queue.Receive(ctx, req)
	}
	req.Max = q.Traits().MaxBatch
	got, err := q.Queue.Receive(ctx, req)
	if len(got) == 0 {
		return got, err
	}
	chosen := max(0, slices.IndexFunc(got, func(d driver.Delivery) bool {
		known, _ := q.served.get(d.Group)
		return !known || d.Group == ""
	}))
	for i, d := range got {
		if i != chosen {
			_, _ = q.Queue.Extend(ctx, []driver.Extension{{Receipt: d.Receipt}})
		}
	}
	q.served.put(got[chosen].Group, true)
	return []driver.Delivery{got[chosen]}, err
}

type reversesGroups struct{ passThrough }

func (q reversesGroups) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if q.Traits().FairGroups {
		slices.Reverse(got)
	}
	return got, err
}

type looksByGroup struct{ passThrough }

func (q looksByGroup) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	if !q.Traits().FairGroups {
		return q.Queue.Peek(ctx, query)
	}
	return func(yield func(driver.Peeked, error) bool) {
		var all []driver.Peeked
		for seen, err := range q.Queue.Peek(ctx, query) {
			if err != nil {
				yield(seen, err)
				return
			}
			all = append(all, seen)
		}
		slices.SortStableFunc(all, func(a, b driver.Peeked) int { return cmp.Compare(a.Group, b.Group) })
		for _, seen := range all {
			if !yield(seen, nil) {
				return
			}
		}
	}
}

type losesHundredth struct {
	passThrough
	taken *atomic.Int64
}

func (q losesHundredth) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if !q.Traits().FairGroups {
		return got, err
	}
	return slices.DeleteFunc(got, func(d driver.Delivery) bool {
		return q.taken.Add(1)%100 == 0 && q.Queue.Ack(ctx, []driver.Receipt{d.Receipt}) == nil
	}), err
}
