package faulty

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

var fairFaults = []Saboteur{
	{Name: "is-not-fair", Breaks: "FAIR-1",
		What: "A queue with fair groups delivers in the order of sending.",
		on:   hooks{config: func(c *driver.Config) { c.FairGroups = false }, traits: claimGroups}},
	{Name: "does-not-say-fair", Breaks: "FAIR-1",
		What: "A queue with fair groups does not report it.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.FairGroups = false })}},
	{Name: "is-fair-and-strict", Breaks: "FAIR-1",
		What: "A queue configured with fair and strict groups is accepted, and is fair.",
		on:   hooks{configure: alterConfig(func(c *driver.Config) { c.StrictGroups = c.StrictGroups && !c.FairGroups })}},
	{Name: "is-fair-to-messages", Breaks: "FAIR-1",
		What: "Each message of a fair group counts as a group of its own.",
		on: regroup(
			func(q *queue, group string) bool { return group != "" && q.Traits().FairGroups },
			func(q *queue, group string) string { return fmt.Sprint(group, " ", q.calls.Add(1)) })},
	{Name: "takes-no-group-for-a-noisy-one", Breaks: "FAIR-1",
		What: "Messages without a group form one fair group.",
		on: regroup(
			func(q *queue, group string) bool { return group == "" && q.Traits().FairGroups },
			func(*queue, string) string { return "none" })},
	{Name: "folds-fair-groups", Breaks: "FAIR-1",
		What: "Fair groups that differ only in case share one turn.",
		on: regroup(
			func(q *queue, group string) bool { return q.Traits().FairGroups },
			func(_ *queue, group string) string { return strings.ToLower(group) })},
	{Name: "ungroups-on-restart", Breaks: "FAIR-1",
		What: "After a restart waiting messages of fair groups have no group.",
		restart: func(q *queue, ctx context.Context) error {
			if !q.Traits().FairGroups {
				return nil
			}
			return q.refill(ctx, func(msgs []driver.Outgoing) []driver.Outgoing {
				for i := range msgs {
					msgs[i].Group = ""
				}
				return msgs
			}, driver.StateReady)
		}},

	{Name: "gives-a-group-two-turns", Breaks: "FAIR-2",
		What: "A fair group gets twice as many turns as another.",
		on: regroup(
			func(q *queue, group string) bool { return group != "" && q.Traits().FairGroups },
			func(q *queue, group string) string { return fmt.Sprint(group, " ", q.calls.Add(1)%2) })},
	{Name: "starves-a-backlog", Breaks: "FAIR-2",
		What: "A group that was served before waits until all new groups are served.",
		on: hooks{only: fair, receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if req.Max != 1 {
				return q.Receive(ctx, req)
			}
			req.Max = q.Traits().MaxBatch
			got, err := q.Receive(ctx, req)
			if len(got) == 0 {
				return got, err
			}
			served := state[marks](q)
			chosen := max(0, slices.IndexFunc(got, func(d driver.Delivery) bool { return !served.at(d.Group) || d.Group == "" }))
			for i, d := range got {
				if i != chosen {
					_ = q.release(ctx, d.Receipt)
				}
			}
			served.put(got[chosen].Group, true)
			return []driver.Delivery{got[chosen]}, err
		}}},

	{Name: "takes-fair-for-strict", Breaks: "FAIR-3",
		What: "A fair group is blocked while one of its messages is in flight.",
		on: hooks{config: func(c *driver.Config) {
			c.StrictGroups = c.StrictGroups || c.FairGroups
			c.FairGroups = false
		}, traits: claimGroups}},
	{Name: "returns-a-fair-group-backwards", Breaks: "FAIR-3",
		What: "A receive from a queue with fair groups returns its messages in reverse.",
		on:   hooks{only: fair, receive: returnBackwards}},
	{Name: "does-not-count-the-noisy", Breaks: "FAIR-3", Also: []string{"CNT-1"},
		What: "Messages of a fair group with a message in flight are not counted as ready.",
		on:   hooks{only: fair, stats: (*queue).withoutBlocked}},
	{Name: "shows-fair-groups-one-by-one", Breaks: "FAIR-3",
		What: "A peek at a queue with fair groups shows one group after the other.",
		on: hooks{only: fair, peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			return rearranged(q.Peek(ctx, query), func(all []driver.Peeked) {
				slices.SortStableFunc(all, func(a, b driver.Peeked) int { return cmp.Compare(a.Group, b.Group) })
			})
		}}},
	{Name: "loses-some-of-many-groups", Breaks: "FAIR-3",
		What: "Every hundredth delivery of a queue with fair groups is lost.",
		on: hooks{only: fair, receive: afterReceive(func(q *queue, ctx context.Context, got []driver.Delivery) []driver.Delivery {
			return slices.DeleteFunc(got, func(d driver.Delivery) bool { return q.nth(100) && q.ackOne(ctx, d.Receipt) == nil })
		})}},
}

// claimGroups returns the traits that the configuration asks for.
func claimGroups(q *queue) driver.Traits {
	traits, config := q.Traits(), q.config()
	traits.FairGroups, traits.StrictGroups = config.FairGroups, config.StrictGroups
	return traits
}
