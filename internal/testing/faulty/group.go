package faulty

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

var groupFaults = []Saboteur{
	{Name: "delivers-a-group-to-two", Breaks: "ORD-4",
		What: "A group's next message is delivered while an earlier one is in flight.",
		on:   hooks{config: func(c *driver.Config) { c.StrictGroups = false }, traits: claimGroups}},
	{Name: "puts-the-nacked-at-the-tail-of-its-group", Breaks: "ORD-4",
		What: "A nacked message goes to the tail of its group.",
		on: hooks{only: strict, receive: countOn, nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			if nack.Delay != 0 || q.config().MaxDeliveries > 0 {
				return q.nackOne(ctx, nack)
			}
			return q.deadLetterAndRedrive(ctx, nack)
		})}},
	{Name: "lets-a-group-block-others", Breaks: "ORD-4",
		What: "While a message of one group is in flight, no other group is delivered.",
		on: hooks{only: strict, receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			for end := time.Now().Add(req.Wait); ; {
				stats, err := q.Stats(ctx)
				if err != nil {
					return nil, err
				}
				rest := time.Until(end)
				if stats.InFlight == 0 {
					req.Wait = max(rest, 0)
					return q.Receive(ctx, req)
				}
				if rest <= 0 {
					return nil, nil
				}
				if err := backoff.Pause(ctx, min(10*time.Millisecond, rest)); err != nil {
					return nil, err
				}
			}
		}}},
	{Name: "holds-a-released-head", Breaks: "ORD-4",
		What: "A later message in flight blocks the earlier ones of its group.",
		on:   blockedBy(func(other driver.Peeked) bool { return other.State == driver.StateInFlight })},
	{Name: "lets-a-nack-delay-be-passed", Breaks: "ORD-4",
		What: "A message that was nacked with a delay does not block its group.",
		// It is acked, and a copy is sent with that delay.
		on: hooks{only: strict, nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			d, ok := q.delivered.get(nack.Receipt)
			if !ok || nack.Delay == 0 || nack.Delay > q.Traits().MaxDelay {
				return q.nackOne(ctx, nack)
			}
			if err := q.ackOne(ctx, nack.Receipt); err != nil {
				return renamed(err, "nack")
			}
			_, err := q.sendOne(ctx, driver.Outgoing{Body: d.Body, Attributes: d.Attributes, Group: d.Group, Delay: nack.Delay})
			return err
		})}},
	{Name: "lets-a-nack-delay-hold-earlier-messages", Breaks: "ORD-4",
		What: "A message that was nacked with a delay blocks earlier ones of its group too.",
		on:   blockedBy(func(other driver.Peeked) bool { return other.State == driver.StateDelayed && other.Deliveries > 0 })},
	{Name: "lets-a-send-delay-hold-its-group", Breaks: "ORD-4",
		What: "A message that was sent with a delay blocks its group until it is due.",
		on:   blockedBy(func(other driver.Peeked) bool { return other.State == driver.StateDelayed && other.Deliveries == 0 })},
	{Name: "lets-a-delayed-message-join-at-the-tail", Breaks: "ORD-4",
		What: "A message whose send delay is over waits for all blocking messages of its group.",
		on: hooks{
			only: strict,
			send: afterSend(func(q *queue, msg driver.Outgoing, sent *driver.Sent) {
				if msg.Delay > 0 && sent.ID != "" {
					state[refusals](q).delayed.put(sent.ID, true)
				}
			}),
			receive: refuse(func(q *queue, d driver.Delivery, other driver.Peeked) bool {
				return state[refusals](q).delayed.at(d.ID) && other.Deliveries > 0 && other.State != driver.StateReady
			}),
		}},
	{Name: "interleaves-groups-in-a-batch", Breaks: "ORD-4",
		What: "A batch has a message of every group before a second one of any group.",
		on: hooks{only: strict, receive: afterReceive(func(_ *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
			round, rounds := make(map[string]int), make(map[string]int) // by group, and by id
			for _, d := range got {
				round[d.Group]++
				rounds[d.ID] = round[d.Group]
			}
			slices.SortStableFunc(got, func(a, b driver.Delivery) int { return rounds[a.ID] - rounds[b.ID] })
			return got
		})}},
	{Name: "serves-the-same-group-again", Breaks: "ORD-4",
		What: "A group that was received from is served before the others.",
		// It gives back messages until it gets one of the group that was served last, if one is ready.
		on: hooks{only: strict, receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			books := state[refusals](q)
			latest, ok := books.latest.get("")
			for range 5 {
				got, err := q.Receive(ctx, req)
				if len(got) == 0 {
					return got, err
				}
				waits := slices.ContainsFunc(q.peeked(ctx, driver.StateReady), func(other driver.Peeked) bool { return other.Group == latest })
				if len(got) > 1 || !ok || got[0].Group == latest || !waits {
					books.latest.put("", got[0].Group)
					for i := range got {
						got[i].Deliveries -= books.uncount.at(got[i].ID)
					}
					return got, nil
				}
				q.giveBack(ctx, got[0])
			}
			return nil, nil
		}}},
	{Name: "takes-no-group-for-many", Breaks: "ORD-4",
		What: "Messages without a group do not wait for each other.",
		on: regroup(
			func(q *queue, group string) bool { return group == "" && q.Traits().StrictGroups },
			func(q *queue, group string) string { return fmt.Sprint("alone ", q.calls.Add(1)) })},
	{Name: "folds-groups", Breaks: "ORD-4",
		What: "Groups that differ only in case wait for each other.",
		on: regroup(
			func(*queue, string) bool { return true },
			func(_ *queue, group string) string { return strings.ToLower(group) })},
	{Name: "takes-one-of-a-group-per-batch", Breaks: "ORD-4",
		What: "A batch has only one message of each group.",
		on: hooks{only: strict, receive: afterReceive(func(q *queue, ctx context.Context, got []driver.Delivery) []driver.Delivery {
			taken := make(map[string]bool)
			return slices.DeleteFunc(got, func(d driver.Delivery) bool {
				again := taken[d.Group]
				taken[d.Group] = true
				if again {
					_ = q.release(ctx, d.Receipt)
				}
				return again
			})
		})}},
	{Name: "does-not-say-strict", Breaks: "ORD-4",
		What: "A queue with strict groups does not report it.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.StrictGroups = false })}},
	{Name: "does-not-count-the-blocked", Breaks: "ORD-4", Also: []string{"CNT-1"},
		What: "Messages of a blocked group are not counted as ready.",
		on:   hooks{stats: (*queue).withoutBlocked}},
	{Name: "does-not-wake-for-a-freed-group", Breaks: "ORD-4",
		What: "A receiver that waits for a blocked group is woken a second late.",
		on: hooks{only: strict, receive: pollEvery(time.Second, func(q *queue, ctx context.Context, _ driver.ReceiveRequest) bool {
			stats, _ := q.Stats(ctx)
			return stats.InFlight > 0
		})}},
}

// countOn adds the deliveries before the redrive of a message, see deadLetterAndRedrive.
var countOn = alterDelivered(func(q *queue, d *driver.Delivery) { d.Deliveries += state[counts](q).at(d.ID) })

// deadLetterAndRedrive nacks a message so that it gets a new place in a strict group, and a new
// age. Only a redrive gives these.
func (q *queue) deadLetterAndRedrive(ctx context.Context, nack driver.Nack) error {
	d, ok := q.delivered.get(nack.Receipt)
	if !ok {
		return q.nackOne(ctx, nack)
	}
	request := driver.DeadLetterRequest{Receipt: nack.Receipt, Reason: driver.ReasonOperator, Error: nack.Cause}
	if err := q.deadLetterOne(ctx, request); err != nil {
		return renamed(err, "nack")
	}
	state[counts](q).put(d.ID, d.Deliveries)
	_, err := q.Redrive(ctx, []string{d.ID}, 0)
	return err
}

// renamed returns the error of a batch of one under the name of another operation.
func renamed(err error, op string) error {
	if _, ok := errors.AsType[*driver.Error](err); !ok || !ofBatch(err) {
		return err
	}
	return driver.NewBatchError([]error{alterError(err, func(e *driver.Error) { e.Op = op })})
}

// refusals are messages sent with a delay, and how often giveBack gave back each message.
type refusals struct {
	delayed marks
	uncount counts
	latest  texts // "" to the group that was served last
}

// blockedBy blocks the messages of a group while another message of the group matches.
func blockedBy(blocks func(other driver.Peeked) bool) hooks {
	return hooks{only: strict, receive: refuse(func(_ *queue, _ driver.Delivery, other driver.Peeked) bool { return blocks(other) })}
}

// refuse gives back messages that another message of their group blocks. It decides by the
// content of the queue before the receive.
func refuse(blocks func(q *queue, d driver.Delivery, other driver.Peeked) bool) receiveFunc {
	return func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		before, err := collect(q.Peek(ctx, driver.Query{States: []driver.State{
			driver.StateReady, driver.StateDelayed, driver.StateInFlight,
		}}))
		if err != nil {
			return nil, err
		}
		got, err := q.Receive(ctx, req)
		var mine []driver.Delivery
		for _, d := range got {
			if slices.ContainsFunc(before, func(other driver.Peeked) bool { return other.Group == d.Group && blocks(q, d, other) }) {
				q.giveBack(ctx, d)
				continue
			}
			d.Deliveries -= state[refusals](q).uncount.at(d.ID)
			mine = append(mine, d)
		}
		return mine, err
	}
}

// giveBack ends a delivery without counting it.
func (q *queue) giveBack(ctx context.Context, d driver.Delivery) {
	add(&state[refusals](q).uncount, d.ID, 1)
	_ = q.release(ctx, d.Receipt)
}

// withoutBlocked counts without the ready messages of groups that have other messages.
func (q *queue) withoutBlocked(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Stats(ctx)
	if traits := q.Traits(); err != nil || !(traits.StrictGroups || traits.FairGroups) {
		return stats, err
	}
	held := make(map[string]bool)
	for _, seen := range q.peeked(ctx, driver.StateInFlight, driver.StateDelayed) {
		held[seen.Group] = true
	}
	for _, seen := range q.peeked(ctx, driver.StateReady) {
		if held[seen.Group] {
			stats.Ready--
		}
	}
	return stats, nil
}
