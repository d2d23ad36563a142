package faulty

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// rareFaults show only in many operations, or in many concurrent ones.
var rareFaults = []Saboteur{
	{Name: "loses-one-in-500", Breaks: "SND-1", Rare: true,
		What: "One message in 500 is answered with an id and never enqueued.",
		on:   hooks{send: dropEvery(500)}},
	{Name: "doubles-one-in-1000", Breaks: "VIS-1", Also: []string{"SND-1", "VIS-2", "RCV-3"}, Rare: true,
		What: "One delivery in 1000 also goes to the next receiver.",
		on: hooks{receive: afterReceive(func(q *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
			copied := state[lastDelivery](q)
			if len(got) > 0 && copied.get().ID != "" {
				return append(got[:len(got):len(got)], copied.take())
			}
			for _, d := range got {
				if q.nth(1000) {
					copied.set(d)
				}
			}
			return got
		})}},
	{Name: "forgets-one-ack-in-300", Breaks: "ACK-1", Also: []string{"SND-1"}, Rare: true,
		What: "One ack in 300 succeeds without an effect.",
		on: hooks{ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			if q.nth(300) { // checks the receipt and keeps the lease for a while
				return renamed(extended(q.extendOne(ctx, driver.Extension{Receipt: receipt, Visibility: time.Second})), "ack")
			}
			return q.ackOne(ctx, receipt)
		})}},
	{Name: "miscounts-one-in-400", Breaks: "RCV-3", Also: []string{"SND-1"}, Rare: true,
		What: "One delivery in 400 has the count of the one before.",
		on:   hooks{receive: alterDelivered(func(q *queue, d *driver.Delivery) { set(q.nth(400), &d.Deliveries, d.Deliveries-1) })}},
	{Name: "flips-a-bit-in-1000", Breaks: "SND-3", Rare: true,
		What: "One body in 1000 has a wrong bit on delivery.",
		on: hooks{receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			if len(d.Body) > 0 && q.nth(1000) {
				d.Body = bytes.Clone(d.Body)
				d.Body[0] ^= 1
			}
		})}},
	{Name: "swaps-neighbours-now-and-then", Breaks: "ORD-1", Rare: true,
		What: "One receive in 50 returns its first two messages in reverse.",
		on: hooks{receive: afterReceive(func(q *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
			if len(got) > 1 && q.nth(50) {
				got[0], got[1] = got[1], got[0]
			}
			return got
		})}},
	{Name: "misses-one-wake-in-50", Breaks: "RCV-2", Rare: true,
		What: "One waiting receiver in 50 is not woken and gets its message a second late.",
		on: hooks{receive: pollEvery(time.Second, func(q *queue, _ context.Context, req driver.ReceiveRequest) bool {
			return req.Wait > 0 && q.nth(50)
		})}},
	{Name: "miscounts-stats-one-in-40", Breaks: "CNT-1", Also: []string{"DLQ-1"}, Rare: true,
		What: "One Stats in 40 counts a message in flight as ready.",
		on: hooks{stats: alterStats(func(q *queue, stats *driver.Stats) {
			if stats.InFlight > 0 && q.nth(40) {
				stats.InFlight--
				stats.Ready++
			}
		})}},
	{Name: "sends-one-in-200-twice", Breaks: "SND-6", Also: []string{"SND-1", "CNT-1"}, Rare: true,
		What: "One message in 200 is enqueued a second time under an id that was not returned.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			if q.losable(msg) && q.nth(200) {
				_, _ = q.sendOne(ctx, msg)
			}
			return q.sendOne(ctx, msg)
		})}},
	{Name: "reuses-one-id-in-300", Breaks: "SND-1", Rare: true,
		What: "One send in 300 is answered with an id that no message has.",
		on: hooks{send: afterSend(func(q *queue, _ driver.Outgoing, sent *driver.Sent) {
			set(sent.ID != "" && q.nth(300), &sent.ID, ulid.Make().String())
		})}},
	{Name: "hurries-one-delayed-in-50", Breaks: "SND-2", Rare: true,
		What: "One delayed message in 50 is ready at once.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			set(msg.Delay > 0 && q.losable(*msg) && q.nth(50), &msg.Delay, 0)
		})}},
	{Name: "hurries-one-nacked-in-20", Breaks: "ACK-1", Rare: true,
		What: "One message in 20 that is nacked with a delay is ready at once.",
		on: hooks{nack: alterEach((*queue).Nack, func(q *queue, nack *driver.Nack) {
			set(nack.Delay > 0 && nack.Delay <= q.Traits().MaxVisibility && q.nth(20), &nack.Delay, 0)
		})}},
}

// sequenceFaults show only after one unusual sequence of operations, which only random programs
// find.
var sequenceFaults = []Saboteur{
	{Name: "does-not-count-a-glance-at-the-nacked", Breaks: "RCV-3", Rare: true,
		What: "A delivery with visibility zero does not count once the message was nacked.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			uncounted := state[counts](q)
			for i := range got {
				got[i].Deliveries -= uncounted.at(got[i].ID)
				if req.Visibility == 0 && got[i].LastError != "" {
					add(uncounted, got[i].ID, 1)
				}
			}
			return got, err
		}}},
	{Name: "loses-attributes-of-the-nacked", Breaks: "SND-3", Rare: true,
		What: "A message that was nacked twice loses its attributes.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { set(d.Deliveries > 2 && d.LastError != "", &d.Attributes, nil) })}},
	{Name: "peeks-past-the-third-ready", Breaks: "CNT-2", Rare: true,
		What: "A peek at ready messages skips the third.",
		on: hooks{peek: func(q *queue, ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
			ready := 0
			return filter(q.Peek(ctx, query), func(seen *driver.Peeked) bool {
				if seen.State == driver.StateReady {
					ready++
				}
				return seen.State != driver.StateReady || ready != 3
			})
		}}},
	{Name: "loses-the-group-on-redrive", Breaks: "DLQ-5", Rare: true, Also: []string{"RCV-3"},
		What: "A message that was redriven twice has no group.",
		on: hooks{
			redrive: beforeRedrive(func(q *queue, letter driver.DeadLetter) { state[counts](q).put(letter.ID, letter.Redrives+1) }),
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { set(state[counts](q).at(d.ID) > 1, &d.Group, "") }),
		}},
}
