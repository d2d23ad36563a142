package faulty

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var groupers = []Saboteur{
	{
		Name: "delivers-a-group-to-two", Breaks: "ORD-4",
		What: "A group's next message is delivered while an earlier one is out.",
		Wrap: misreadsAndHides(func(config *driver.Config) { config.StrictGroups = false },
			func(q passing) handle { return claimsStrict{q} }),
	},
	{
		Name: "puts-the-nacked-at-the-tail-of-its-group", Breaks: "ORD-4",
		What: "A nacked message goes to the tail of its group.",
		Wrap: perQueue(func(q passing, books *nackBooks) handle { return nacksToGroupTail{q, books} }),
	},
	{
		Name: "lets-a-group-block-others", Breaks: "ORD-4",
		What: "While one group is out, no other is delivered.",
		Wrap: perHandle(func(q passing) handle { return blocksOthers{q} }),
	},
	{
		Name: "lets-a-delayed-head-be-passed", Breaks: "ORD-4",
		What: "A delayed message does not hold up its group.",
		Wrap: perQueue(func(q passing, groups *trueGroups) handle {
			return regroups{q, groups, func(msg driver.Outgoing) string {
				if msg.Delay == 0 {
					return msg.Group
				}
				return fmt.Sprint(msg.Group, " delayed ", groups.turn.Add(1))
			}}
		}),
	},
	{
		Name: "takes-no-group-for-many", Breaks: "ORD-4",
		What: "Messages without a group do not wait for each other.",
		Wrap: perQueue(func(q passing, groups *trueGroups) handle {
			return regroups{q, groups, func(msg driver.Outgoing) string {
				if msg.Group != "" || !q.Traits().StrictGroups {
					return msg.Group
				}
				return fmt.Sprint("alone ", groups.turn.Add(1))
			}}
		}),
	},
	{
		Name: "folds-groups", Breaks: "ORD-4",
		What: "Groups that differ only in case wait for each other.",
		Wrap: perQueue(func(q passing, groups *trueGroups) handle {
			return regroups{q, groups, func(msg driver.Outgoing) string { return strings.ToLower(msg.Group) }}
		}),
	},
	{
		Name: "takes-one-of-a-group-per-batch", Breaks: "ORD-4",
		What: "A batch holds only one message of a group.",
		Wrap: perHandle(func(q passing) handle { return oneOfGroup{q} }),
	},
	{
		Name: "does-not-say-strict", Breaks: "ORD-4",
		What: "A queue with strict groups does not say so.",
		Wrap: perHandle(func(q passing) handle { return deniesStrict{q} }),
	},
	{
		Name: "does-not-count-the-blocked", Breaks: "ORD-4", Also: []string{"CNT-1"},
		What: "Messages behind a group that is out are not counted as ready.",
		Wrap: perHandle(func(q passing) handle { return hidesBlocked{q} }),
	},
	{
		Name: "does-not-wake-for-a-freed-group", Breaks: "ORD-4",
		What: "Who waits for a group that is out finds its next message a second late.",
		Wrap: perHandle(func(q passing) handle { return missesFreedGroups{q} }),
	},
}

type claimsStrict struct{ passing }

func (q claimsStrict) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.StrictGroups = q.config().StrictGroups
	return traits
}

// nacksToGroupTail buries what is nacked and redrives it, because a redrive is
// all that gives a message of a strict group a new place.
type nacksToGroupTail struct {
	passing
	*nackBooks
}

func (q nacksToGroupTail) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		before, _ := q.before.get(got[i].ID)
		got[i].Deliveries += before
		q.delivered.put(got[i].Receipt, got[i])
	}
	return got, err
}

func (q nacksToGroupTail) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		if nack.Delay != 0 || !q.Traits().StrictGroups || q.config().MaxDeliveries > 0 {
			return q.Queue.Nack(ctx, []driver.Nack{nack})
		}
		return q.buryAndRedrive(ctx, nack)
	})
}

func (q nacksToGroupTail) buryAndRedrive(ctx context.Context, nack driver.Nack) error {
	d, ok := q.delivered.get(nack.Receipt)
	if !ok {
		return q.Queue.Nack(ctx, []driver.Nack{nack})
	}
	burial := driver.Burial{Receipt: nack.Receipt, Reason: driver.ReasonOperator, Error: nack.Cause}
	if err := q.DeadLetterer.DeadLetter(ctx, []driver.Burial{burial}); err != nil {
		return renamed(err, "nack")
	}
	q.before.put(d.ID, d.Deliveries)
	_, err := q.DeadLetterer.Redrive(ctx, []string{d.ID}, 0)
	return err
}

// renamed is the error of a batch of one, as another operation would return it.
func renamed(err error, op string) error {
	detail, ok := errors.AsType[*driver.Error](err)
	if !ok || !ofBatch(err) {
		return err
	}
	other := *detail
	other.Op = op
	return driver.NewBatchError([]error{&other})
}

type blocksOthers struct{ passing }

func (q blocksOthers) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if !q.Traits().StrictGroups {
		return q.Queue.Receive(ctx, req)
	}
	for end := time.Now().Add(req.Wait); ; {
		stats, err := q.Queue.Stats(ctx)
		if err != nil {
			return nil, err
		}
		rest := time.Until(end)
		if stats.InFlight == 0 {
			req.Wait = max(rest, 0)
			return q.Queue.Receive(ctx, req)
		}
		if rest <= 0 {
			return nil, nil
		}
		select {
		case <-time.After(min(10*time.Millisecond, rest)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type oneOfGroup struct{ passing }

func (q oneOfGroup) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if !q.Traits().StrictGroups {
		return got, err
	}
	var mine []driver.Delivery
	taken := make(map[string]bool)
	for _, d := range got {
		if taken[d.Group] {
			_ = q.Queue.Extend(ctx, []driver.Extension{{Receipt: d.Receipt}})
			continue
		}
		taken[d.Group] = true
		mine = append(mine, d)
	}
	return mine, err
}

type deniesStrict struct{ passing }

func (q deniesStrict) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.StrictGroups = false
	return traits
}

type hidesBlocked struct{ passing }

func (q hidesBlocked) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	if traits := q.Traits(); err != nil || !(traits.StrictGroups || traits.FairGroups) {
		return stats, err
	}
	held := make(map[string]bool)
	for seen, err := range q.Peek(ctx, driver.Query{States: []driver.State{driver.StateInFlight, driver.StateDelayed}}) {
		if err != nil {
			return stats, err
		}
		held[seen.Group] = true
	}
	for seen, err := range q.Peek(ctx, driver.Query{States: []driver.State{driver.StateReady}}) {
		if err != nil {
			return stats, err
		}
		if held[seen.Group] {
			stats.Ready--
		}
	}
	return stats, nil
}

type missesFreedGroups struct{ passing }

func (q missesFreedGroups) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	stats, _ := q.Queue.Stats(ctx)
	if q.Traits().StrictGroups && stats.InFlight > 0 {
		return polls{q.passing, time.Second}.Receive(ctx, req)
	}
	return q.Queue.Receive(ctx, req)
}
