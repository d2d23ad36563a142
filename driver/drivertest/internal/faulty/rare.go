package faulty

import (
	"bytes"
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// rareFaults show only in many operations, or in many concurrent ones.
var rareFaults = []Saboteur{
	{
		Name: "loses-one-in-500", Breaks: "SND-1", Rare: true,
		What: "One message in 500 is answered with an id and never enqueued.",
		Wrap: perQueue(func(q passThrough, sent *atomic.Int64) driver.Queue { return dropsEvery{q, 500, sent} }),
	},
	{
		Name: "doubles-one-in-1000", Breaks: "VIS-1", Also: []string{"SND-1", "VIS-2", "RCV-3"}, Rare: true,
		What: "One delivery in 1000 also goes to the next receiver.",
		Wrap: perQueue(func(q passThrough, copies *copied) driver.Queue { return doublesDeliveries{q, copies} }),
	},
	{
		Name: "forgets-one-ack-in-300", Breaks: "ACK-1", Also: []string{"SND-1"}, Rare: true,
		What: "One ack in 300 succeeds without an effect.",
		Wrap: perQueue(func(q passThrough, acks *atomic.Int64) driver.Queue { return forgetsAcks{q, acks} }),
	},
	{
		Name: "miscounts-one-in-400", Breaks: "RCV-3", Also: []string{"SND-1"}, Rare: true,
		What: "One delivery in 400 has the count of the one before.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if n.Add(1)%400 == 0 {
					d.Deliveries--
				}
			}}
		}),
	},
	{
		Name: "flips-a-bit-in-1000", Breaks: "SND-3", Rare: true,
		What: "One body in 1000 has a wrong bit on delivery.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if len(d.Body) > 0 && n.Add(1)%1000 == 0 {
					d.Body = bytes.Clone(d.Body)
					d.Body[0] ^= 1
				}
			}}
		}),
	},
	{
		Name: "swaps-neighbours-now-and-then", Breaks: "ORD-1", Rare: true,
		What: "One receive in 50 returns its first two messages in reverse.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue { return swapsNeighbours{q, n} }),
	},
	{
		Name: "misses-one-wake-in-50", Breaks: "RCV-2", Rare: true,
		What: "One waiting receiver in 50 is not woken and gets its message a second late.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue { return missesWakes{q, n} }),
	},
	{
		Name: "miscounts-stats-one-in-40", Breaks: "CNT-1", Also: []string{"DLQ-1"}, Rare: true,
		What: "One Stats in 40 counts a message in flight as ready.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue {
			return changesStats{q, func(stats *driver.Stats) {
				if stats.InFlight > 0 && n.Add(1)%40 == 0 {
					stats.InFlight--
					stats.Ready++
				}
			}}
		}),
	},
	{
		Name: "sends-one-in-200-twice", Breaks: "SND-6", Also: []string{"SND-1", "CNT-1"}, Rare: true,
		What: "One message in 200 is enqueued a second time under an id that was not returned.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue { return sendsGhosts{q, n} }),
	},
	{
		Name: "reuses-one-id-in-300", Breaks: "SND-1", Rare: true,
		What: "One send in 300 is answered with an id that no message has.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue { return answersWrongID{q, n} }),
	},
	{
		Name: "hurries-one-delayed-in-50", Breaks: "SND-2", Rare: true,
		What: "One delayed message in 50 is ready at once.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue {
			return changesSent{q, func(msg *driver.Outgoing) {
				if msg.Delay > 0 && q.losable(*msg) && n.Add(1)%50 == 0 {
					msg.Delay = 0
				}
			}}
		}),
	},
	{
		Name: "hurries-one-nacked-in-20", Breaks: "ACK-1", Rare: true,
		What: "One message in 20 that is nacked with a delay is ready at once.",
		Wrap: perQueue(func(q passThrough, n *atomic.Int64) driver.Queue {
			return changesNacks{q, func(nack *driver.Nack) {
				if nack.Delay > 0 && nack.Delay <= q.Traits().MaxVisibility && n.Add(1)%20 == 0 {
					nack.Delay = 0
				}
			}}
		}),
	},
}

// copied is the delivery to return once more.
type copied struct {
	lastDelivery
	n atomic.Int64
}

type doublesDeliveries struct {
	passThrough
	*copied
}

func (q doublesDeliveries) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if d := q.get(); len(got) > 0 && d.ID != "" {
		q.set(driver.Delivery{})
		return append(got[:len(got):len(got)], d), err
	}
	for _, d := range got {
		if q.n.Add(1)%1000 == 0 {
			q.set(d)
		}
	}
	return got, err
}

type forgetsAcks struct {
	passThrough
	n *atomic.Int64
}

func (q forgetsAcks) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		if q.n.Add(1)%300 == 0 { // checks the receipt and keeps the lease for a while
			return renamed(extended(q.Queue.Extend(ctx, []driver.Extension{{Receipt: receipt, Visibility: time.Second}})), "ack")
		}
		return q.Queue.Ack(ctx, []driver.Receipt{receipt})
	})
}

type swapsNeighbours struct {
	passThrough
	n *atomic.Int64
}

func (q swapsNeighbours) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if len(got) > 1 && q.n.Add(1)%50 == 0 {
		got[0], got[1] = got[1], got[0]
	}
	return got, err
}

type missesWakes struct {
	passThrough
	n *atomic.Int64
}

func (q missesWakes) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if req.Wait > 0 && q.n.Add(1)%50 == 0 {
		return polls{q.passThrough, time.Second}.Receive(ctx, req)
	}
	return q.Queue.Receive(ctx, req)
}

type sendsGhosts struct {
	passThrough
	n *atomic.Int64
}

func (q sendsGhosts) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		if q.losable(msg) && q.n.Add(1)%200 == 0 {
			_, _ = q.sendOne(ctx, msg)
		}
		return q.sendOne(ctx, msg)
	})
}

type answersWrongID struct {
	passThrough
	n *atomic.Int64
}

func (q answersWrongID) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range sent {
		if sent[i].ID != "" && q.n.Add(1)%300 == 0 {
			sent[i].ID = ulid.Make().String()
		}
	}
	return sent, err
}

// sequenceFaults show only after one unusual sequence of operations, which only random programs
// find.
var sequenceFaults = []Saboteur{
	{
		Name: "loses-the-error-with-a-causeless-nack", Breaks: "RCV-3", Also: []string{"ACK-1"}, Rare: true,
		What: "A nack without a cause clears the last error.",
		Wrap: perQueue(func(q passThrough, books *wipedErrors) driver.Queue { return wipesErrors{q, books} }),
	},
	{
		Name: "does-not-count-a-glance-at-the-nacked", Breaks: "RCV-3", Rare: true,
		What: "A delivery with visibility zero does not count once the message was nacked.",
		Wrap: perQueue(func(q passThrough, uncounted *table[string, int]) driver.Queue { return skipsGlances{q, uncounted} }),
	},
	{
		Name: "loses-attributes-of-the-nacked", Breaks: "SND-3", Rare: true,
		What: "A message that was nacked twice loses its attributes.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Deliveries > 2 && d.LastError != "" {
					d.Attributes = nil
				}
			}}
		}),
	},
	{
		Name: "peeks-past-the-third-ready", Breaks: "CNT-2", Rare: true,
		What: "A peek at ready messages skips the third.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return skipsThird{q} }),
	},
	{
		Name: "loses-the-group-on-redrive", Breaks: "DLQ-5", Rare: true, Also: []string{"RCV-3"},
		What: "A message that was redriven twice has no group.",
		Wrap: perQueue(func(q passThrough, times *table[string, int]) driver.Queue { return losesOnRedrive{q, times} }),
	},
}

// wipedErrors are the messages whose latest nack had no cause.
type wipedErrors struct {
	messages table[driver.Receipt, string]
	wiped    table[string, bool]
}

type wipesErrors struct {
	passThrough
	*wipedErrors
}

func (q wipesErrors) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		q.messages.put(got[i].Receipt, got[i].ID)
		if wiped, _ := q.wiped.get(got[i].ID); wiped {
			got[i].LastError = ""
		}
	}
	return got, err
}

func (q wipesErrors) Nack(ctx context.Context, nacks []driver.Nack) error {
	err := q.Queue.Nack(ctx, nacks)
	for i, nack := range nacks {
		if id, ok := q.messages.get(nack.Receipt); ok && driver.At(err, i) == nil {
			q.wiped.put(id, nack.Cause == "")
		}
	}
	return err
}

type skipsGlances struct {
	passThrough
	uncounted *table[string, int]
}

func (q skipsGlances) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		id, nacked := got[i].ID, got[i].LastError != ""
		uncounted, _ := q.uncounted.get(id)
		got[i].Deliveries -= uncounted
		if req.Visibility == 0 && nacked {
			add(q.uncounted, id, 1)
		}
	}
	return got, err
}

type losesOnRedrive struct {
	passThrough
	times *table[string, int]
}

func (q losesOnRedrive) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, _ := q.letters(ctx)
	for _, letter := range letters {
		q.times.put(letter.ID, letter.Redrives+1)
	}
	return q.Queue.Redrive(ctx, ids, limit)
}

func (q losesOnRedrive) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if times, _ := q.times.get(got[i].ID); times > 1 {
			got[i].Group = ""
		}
	}
	return got, err
}

type skipsThird struct{ passThrough }

func (q skipsThird) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		ready := 0
		for seen, err := range q.Queue.Peek(ctx, query) {
			if seen.State == driver.StateReady {
				ready++
			}
			if !(ready == 3 && seen.State == driver.StateReady) && !yield(seen, err) {
				return
			}
		}
	}
}
