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

var fairies = []Saboteur{
	{
		Name: "is-not-fair", Breaks: "FAIR-1",
		What: "A queue with fair groups delivers in the order of places.",
		Wrap: misreadsAndHides(func(config *driver.Config) { config.FairGroups = false },
			func(q passing) handle { return claimsFair{q} }),
	},
	{
		Name: "does-not-say-fair", Breaks: "FAIR-1",
		What: "A queue with fair groups does not say so.",
		Wrap: perHandle(func(q passing) handle { return deniesFair{q} }),
	},
	{
		Name: "is-fair-and-strict", Breaks: "FAIR-1",
		What: "Groups that are to be fair and strict are fair.",
		Wrap: perOpener(func(b *box) backend { return takesBoth{b} }),
	},
	{
		Name: "is-fair-to-messages", Breaks: "FAIR-1",
		What: "Each message of a fair group is taken for a group of its own.",
		Wrap: perQueue(func(q passing, groups *trueGroups) handle {
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
		What: "Messages without a group are one fair group together.",
		Wrap: perQueue(func(q passing, groups *trueGroups) handle {
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
		What: "Fair groups that differ only in case share their turns.",
		Wrap: perQueue(func(q passing, groups *trueGroups) handle {
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
		What: "After a restart what waits in a fair group is in none.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
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
		What: "A fair group comes to its turn twice as often as another.",
		Wrap: perQueue(func(q passing, groups *trueGroups) handle {
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
		What: "A group that was served before is not served while there are others.",
		Wrap: perQueue(func(q passing, served *table[string, bool]) handle { return prefersNewcomers{q, served} }),
	},

	{
		Name: "takes-fair-for-strict", Breaks: "FAIR-3",
		What: "Of a fair group nothing is delivered while another message of it is out.",
		Wrap: misreadsAndHides(func(config *driver.Config) {
			config.StrictGroups = config.StrictGroups || config.FairGroups
			config.FairGroups = false
		}, func(q passing) handle { return claimsFair{q} }),
	},
	{
		Name: "returns-a-fair-group-backwards", Breaks: "FAIR-3",
		What: "What a receive of a queue with fair groups takes stands in reverse.",
		Wrap: perHandle(func(q passing) handle { return reversesGroups{q} }),
	},
	{
		Name: "does-not-count-the-noisy", Breaks: "FAIR-3", Also: []string{"CNT-1"},
		What: "What waits in a fair group of which something is out is not counted as ready.",
		Wrap: perHandle(func(q passing) handle {
			if q.Traits().FairGroups {
				return hidesBlocked{q}
			}
			return q
		}),
	},
	{
		Name: "shows-fair-groups-one-by-one", Breaks: "FAIR-3",
		What: "Looking at a queue with fair groups shows one group after the other.",
		Wrap: perHandle(func(q passing) handle { return looksByGroup{q} }),
	},
	{
		Name: "loses-some-of-many-groups", Breaks: "FAIR-3",
		What: "Of a queue with fair groups every hundredth delivery is lost.",
		Wrap: perQueue(func(q passing, taken *atomic.Int64) handle { return losesHundredth{q, taken} }),
	},
}

type claimsFair struct{ passing }

func (q claimsFair) Traits() driver.Traits {
	traits, config := q.Queue.Traits(), q.config()
	traits.FairGroups, traits.StrictGroups = config.FairGroups, config.StrictGroups
	return traits
}

type deniesFair struct{ passing }

func (q deniesFair) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.FairGroups = false
	return traits
}

type takesBoth struct{ *box }

func (b takesBoth) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	if config.FairGroups {
		config.StrictGroups = false
	}
	return b.box.ConfigureQueue(ctx, name, config)
}

// prefersNewcomers looks at what else there is before it delivers a message of a
// group that was served before.
type prefersNewcomers struct {
	passing
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

type reversesGroups struct{ passing }

func (q reversesGroups) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if q.Traits().FairGroups {
		slices.Reverse(got)
	}
	return got, err
}

type looksByGroup struct{ passing }

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
	passing
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
