package faulty

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var groupFaults = []Saboteur{
	{
		Name: "delivers-a-group-to-two", Breaks: "ORD-4",
		What: "A group's next message is delivered while an earlier one is in flight.",
		Wrap: changesConfigAndHides(func(config *driver.Config) { config.StrictGroups = false },
			func(q passThrough) driver.Queue { return claimsStrict{q} }),
	},
	{
		Name: "puts-the-nacked-at-the-tail-of-its-group", Breaks: "ORD-4",
		What: "A nacked message goes to the tail of its group.",
		Wrap: perQueue(func(q passThrough, books *nackCounts) driver.Queue { return nacksToGroupTail{q, books} }),
	},
	{
		Name: "lets-a-group-block-others", Breaks: "ORD-4",
		What: "While a message of one group is in flight, no other group is delivered.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return blocksOthers{q} }),
	},
	{
		Name: "holds-a-released-head", Breaks: "ORD-4",
		What: "A later message in flight blocks the earlier ones of its group.",
		Wrap: perQueue(func(q passThrough, books *refusals) driver.Queue {
			return refuses{q, books, func(d driver.Delivery, before []driver.Peeked) bool {
				return slices.ContainsFunc(before, func(other driver.Peeked) bool {
					return other.State == driver.StateInFlight && other.Group == d.Group
				})
			}}
		}),
	},
	{
		Name: "lets-a-nack-delay-be-passed", Breaks: "ORD-4",
		What: "A message that was nacked with a delay does not block its group.",
		Wrap: perQueue(func(q passThrough, books *nackCounts) driver.Queue { return nacksAside{q, books} }),
	},
	{
		Name: "lets-a-nack-delay-hold-earlier-messages", Breaks: "ORD-4",
		What: "A message that was nacked with a delay blocks earlier ones of its group too.",
		Wrap: perQueue(func(q passThrough, books *refusals) driver.Queue {
			return refuses{q, books, func(d driver.Delivery, before []driver.Peeked) bool {
				return slices.ContainsFunc(before, func(other driver.Peeked) bool {
					return other.State == driver.StateDelayed && other.Deliveries > 0 && other.Group == d.Group
				})
			}}
		}),
	},
	{
		Name: "lets-a-send-delay-hold-its-group", Breaks: "ORD-4",
		What: "A message that was sent with a delay blocks its group until it is due.",
		Wrap: perQueue(func(q passThrough, books *refusals) driver.Queue {
			return refuses{q, books, func(d driver.Delivery, before []driver.Peeked) bool {
				return slices.ContainsFunc(before, func(other driver.Peeked) bool {
					return other.State == driver.StateDelayed && other.Deliveries == 0 && other.Group == d.Group
				})
			}}
		}),
	},
	{
		Name: "lets-a-delayed-message-join-at-the-tail", Breaks: "ORD-4",
		What: "A message whose send delay is over waits for all blocking messages of its group.",
		Wrap: perQueue(func(q passThrough, books *refusals) driver.Queue {
			return refuses{q, books, func(d driver.Delivery, before []driver.Peeked) bool {
				wasDelayed, _ := books.delayed.get(d.ID)
				return wasDelayed && slices.ContainsFunc(before, func(other driver.Peeked) bool {
					return other.Deliveries > 0 && other.State != driver.StateReady && other.Group == d.Group
				})
			}}
		}),
	},
	{
		Name: "interleaves-groups-in-a-batch", Breaks: "ORD-4",
		What: "A batch has a message of every group before a second one of any group.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return interleaves{q} }),
	},
	{
		Name: "serves-the-same-group-again", Breaks: "ORD-4",
		What: "A group that was received from is served before the others.",
		Wrap: perQueue(func(q passThrough, books *refusals) driver.Queue { return servesAgain{q, books} }),
	},
	{
		Name: "takes-no-group-for-many", Breaks: "ORD-4",
		What: "Messages without a group do not wait for each other.",
		Wrap: perQueue(func(q passThrough, groups *trueGroups) driver.Queue {
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
		Wrap: perQueue(func(q passThrough, groups *trueGroups) driver.Queue {
			return regroups{q, groups, func(msg driver.Outgoing) string { return strings.ToLower(msg.Group) }}
		}),
	},
	{
		Name: "takes-one-of-a-group-per-batch", Breaks: "ORD-4",
		What: "A batch has only one message of each group.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return oneOfGroup{q} }),
	},
	{
		Name: "does-not-say-strict", Breaks: "ORD-4",
		What: "A queue with strict groups does not report it.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return deniesStrict{q} }),
	},
	{
		Name: "does-not-count-the-blocked", Breaks: "ORD-4", Also: []string{"CNT-1"},
		What: "Messages of a blocked group are not counted as ready.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return hidesBlocked{q} }),
	},
	{
		Name: "does-not-wake-for-a-freed-group", Breaks: "ORD-4",
		What: "A receiver that waits for a blocked group is woken a second late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return missesFreedGroups{q} }),
	},
}

type claimsStrict struct{ passThrough }

func (q claimsStrict) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.StrictGroups = q.config().StrictGroups
	return traits
}

// nacksToGroupTail dead-letters and redrives nacked messages, because only a redrive gives a
// message of a strict group a new place.
type nacksToGroupTail struct {
	passThrough
	*nackCounts
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
		return q.deadLetterAndRedrive(ctx, nack)
	})
}

func (q nacksToGroupTail) deadLetterAndRedrive(ctx context.Context, nack driver.Nack) error {
	d, ok := q.delivered.get(nack.Receipt)
	if !ok {
		return q.Queue.Nack(ctx, []driver.Nack{nack})
	}
	request := driver.DeadLetterRequest{Receipt: nack.Receipt, Reason: driver.ReasonOperator, Error: nack.Cause}
	if err := q.Queue.DeadLetter(ctx, []driver.DeadLetterRequest{request}); err != nil {
		return renamed(err, "nack")
	}
	q.before.put(d.ID, d.Deliveries)
	_, err := q.Queue.Redrive(ctx, []string{d.ID}, 0)
	return err
}

// renamed returns the error of a batch of one under the name of another operation.
func renamed(err error, op string) error {
	detail, ok := errors.AsType[*driver.Error](err)
	if !ok || !ofBatch(err) {
		return err
	}
	other := *detail
	other.Op = op
	return driver.NewBatchError([]error{&other})
}

// nacksAside acks a message nacked with a delay and sends a copy with that delay.
type nacksAside struct {
	passThrough
	*nackCounts
}

func (q nacksAside) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.delivered.put(d.Receipt, d)
	}
	return got, err
}

func (q nacksAside) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		d, ok := q.delivered.get(nack.Receipt)
		if !ok || nack.Delay == 0 || !q.Traits().StrictGroups || nack.Delay > q.Traits().MaxDelay {
			return q.Queue.Nack(ctx, []driver.Nack{nack})
		}
		if err := q.Queue.Ack(ctx, []driver.Receipt{nack.Receipt}); err != nil {
			return renamed(err, "nack")
		}
		_, err := q.Queue.Send(ctx, []driver.Outgoing{{Body: d.Body, Attributes: d.Attributes, Group: d.Group, Delay: nack.Delay}})
		return err
	})
}

// refusals are messages sent with a delay, and how often refuses gave each of them back.
type refusals struct {
	delayed table[string, bool]
	uncount table[string, int]
	latest  table[string, string] // "" to the group that was served last
}

// refuses gives back some messages without counting the delivery. It decides by the content of
// the queue before the receive.
type refuses struct {
	passThrough
	*refusals
	refuse func(d driver.Delivery, before []driver.Peeked) bool
}

func (q refuses) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range sent {
		if msgs[i].Delay > 0 && sent[i].ID != "" {
			q.delayed.put(sent[i].ID, true)
		}
	}
	return sent, err
}

func (q refuses) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if !q.Traits().StrictGroups {
		return q.Queue.Receive(ctx, req)
	}
	before, err := peekAll(ctx, q.passThrough)
	if err != nil {
		return nil, err
	}
	got, err := q.Queue.Receive(ctx, req)
	var mine []driver.Delivery
	for _, d := range got {
		if q.refuse(d, before) {
			q.giveBack(ctx, q.passThrough, d)
		} else {
			mine = append(mine, q.counted(d))
		}
	}
	return mine, err
}

// giveBack ends a delivery without counting it.
func (r *refusals) giveBack(ctx context.Context, q passThrough, d driver.Delivery) {
	times, _ := r.uncount.get(d.ID)
	r.uncount.put(d.ID, times+1)
	_, _ = q.Queue.Extend(ctx, []driver.Extension{{Receipt: d.Receipt}})
}

func (r *refusals) counted(d driver.Delivery) driver.Delivery {
	times, _ := r.uncount.get(d.ID)
	d.Deliveries -= times
	return d
}

func peekAll(ctx context.Context, q passThrough) (all []driver.Peeked, err error) {
	for seen, err := range q.Peek(ctx, driver.Query{States: []driver.State{
		driver.StateReady, driver.StateDelayed, driver.StateInFlight,
	}}) {
		if err != nil {
			return nil, err
		}
		all = append(all, seen)
	}
	return all, nil
}

type interleaves struct{ passThrough }

func (q interleaves) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if !q.Traits().StrictGroups {
		return got, err
	}
	round := make(map[string]int)
	rounds := make(map[string]int) // by id
	for _, d := range got {
		round[d.Group]++
		rounds[d.ID] = round[d.Group]
	}
	slices.SortStableFunc(got, func(a, b driver.Delivery) int { return rounds[a.ID] - rounds[b.ID] })
	return got, err
}

type servesAgain struct {
	passThrough
	*refusals
}

// Receive gives back messages until it gets one of the group that was served last, if one is
// ready.
func (q servesAgain) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	latest, ok := q.latest.get("")
	for range 5 {
		got, err := q.Queue.Receive(ctx, req)
		if !q.Traits().StrictGroups || len(got) == 0 {
			return got, err
		}
		before, err := peekAll(ctx, q.passThrough)
		if err != nil {
			return nil, err
		}
		waits := slices.ContainsFunc(before, func(other driver.Peeked) bool {
			return other.State == driver.StateReady && other.Group == latest
		})
		if len(got) > 1 || !ok || got[0].Group == latest || !waits {
			q.latest.put("", got[0].Group)
			for i := range got {
				got[i] = q.counted(got[i])
			}
			return got, nil
		}
		q.giveBack(ctx, q.passThrough, got[0])
	}
	return nil, nil
}

type blocksOthers struct{ passThrough }

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

type oneOfGroup struct{ passThrough }

func (q oneOfGroup) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if !q.Traits().StrictGroups {
		return got, err
	}
	var mine []driver.Delivery
	taken := make(map[string]bool)
	for _, d := range got {
		if taken[d.Group] {
			_, _ = q.Queue.Extend(ctx, []driver.Extension{{Receipt: d.Receipt}})
			continue
		}
		taken[d.Group] = true
		mine = append(mine, d)
	}
	return mine, err
}

type deniesStrict struct{ passThrough }

func (q deniesStrict) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.StrictGroups = false
	return traits
}

type hidesBlocked struct{ passThrough }

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

type missesFreedGroups struct{ passThrough }

func (q missesFreedGroups) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	stats, _ := q.Queue.Stats(ctx)
	if q.Traits().StrictGroups && stats.InFlight > 0 {
		return polls{q.passThrough, time.Second}.Receive(ctx, req)
	}
	return q.Queue.Receive(ctx, req)
}
