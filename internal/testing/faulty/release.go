package faulty

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var releaseFaults = []Saboteur{
	{Name: "counts-releases", Breaks: "FLOW-4",
		What: "A message that is released keeps its place, and the delivery counts.",
		on: hooks{nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			if nack.Mode == driver.NackRelease && nack.Delay == 0 {
				return renamed(q.release(ctx, nack.Receipt), "nack")
			}
			return q.nackOne(ctx, nack)
		})}},
	{Name: "counts-what-is-put-back", Breaks: "FLOW-4",
		What: "A message that is put back waits at the tail, and the delivery counts.",
		on:   changeMode(driver.NackPutBack, driver.NackFailed)},
	{Name: "releases-to-the-tail", Breaks: "FLOW-4",
		What: "A message that is released waits at the tail.",
		on:   changeMode(driver.NackRelease, driver.NackPutBack)},
	{Name: "puts-back-in-place", Breaks: "FLOW-4",
		What: "A message that is put back keeps its place.",
		on:   changeMode(driver.NackPutBack, driver.NackRelease)},
	{Name: "forgets-the-delay-of-a-release", Breaks: "FLOW-4",
		What: "A message that is released with a delay is ready at once.",
		on: hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) {
			set(nack.Mode != driver.NackFailed && nack.Delay > 0, &nack.Delay, 0)
		})}},
	{Name: "loses-the-cause-of-a-release", Breaks: "FLOW-4",
		What: "A message that is given back uncounted does not keep the cause.",
		on: hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) {
			set(nack.Mode != driver.NackFailed, &nack.Cause, "")
		})}},
	{Name: "releases-without-end", Breaks: "FLOW-4",
		What: "The seventeenth release in a row does not count.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { d.Deliveries -= state[releases](q).hidden.at(d.ID) }),
			nack: afterEach((*queue).Nack, func(q *queue, nack driver.Nack) {
				if books := state[releases](q); books.note(q, nack) > driver.MaxReleases {
					add(&books.hidden, q.idOf(nack.Receipt), 1)
					books.row.drop(q.idOf(nack.Receipt))
				}
			}),
		}},
	{Name: "releases-eight-times", Breaks: "FLOW-4",
		What: "The ninth release in a row counts.",
		on: hooks{nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			if state[releases](q).note(q, nack)%9 == 0 && nack.Mode == driver.NackRelease && nack.Delay == 0 {
				return renamed(q.release(ctx, nack.Receipt), "nack")
			}
			return q.nackOne(ctx, nack)
		})}},
	{Name: "counts-releases-for-life", Breaks: "FLOW-4",
		What: "A message can be released 16 times in all, whatever counts in between.",
		on: hooks{nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			if nack.Mode == driver.NackFailed {
				return q.nackOne(ctx, nack)
			}
			if books := state[releases](q); add(&books.row, q.idOf(nack.Receipt), 1) > driver.MaxReleases {
				nack.Mode = driver.NackFailed
			}
			return q.nackOne(ctx, nack)
		})}},
	{Name: "keeps-the-time-of-a-released-delivery", Breaks: "FLOW-4",
		What: "FirstReceivedAt is that of the first delivery, also if it was given back.",
		on: hooks{receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			first := state[table[string, time.Time]](q)
			if at, ok := first.get(d.ID); ok {
				d.FirstReceivedAt = at
			}
			first.put(d.ID, d.FirstReceivedAt)
		})}},
	{Name: "keeps-a-released-receipt", Breaks: "FLOW-4",
		What: "A message can be acked with a receipt that was released.",
		on: hooks{
			nack: afterEach((*queue).Nack, func(q *queue, nack driver.Nack) {
				if nack.Mode != driver.NackFailed {
					state[receiptMarks](q).put(nack.Receipt, true)
				}
			}),
			ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
				return unless(state[receiptMarks](q).at(receipt), q.ackOne(ctx, receipt))
			}),
		}},
	{Name: "releases-a-batch-alike", Breaks: "FLOW-4",
		What: "All messages of a batch are given back in the mode of the first.",
		on: hooks{nack: func(q *queue, ctx context.Context, nacks []driver.Nack) error {
			return q.Nack(ctx, changed(q, nacks, func(_ *queue, nack *driver.Nack) { nack.Mode = nacks[0].Mode }))
		}}},
	{Name: "does-not-wake-for-a-release", Breaks: "FLOW-4",
		What: "A receive that waits notices after a while that a message was given back.",
		on: hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) {
			set(nack.Mode != driver.NackFailed && nack.Delay == 0, &nack.Delay, 1300*time.Millisecond)
		})}},
	{Name: "lets-a-snoozed-message-be-overtaken", Breaks: "FLOW-4",
		What: "A message that is released with a delay does not block its strict group.",
		on: hooks{only: strict, nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			d, ok := q.delivered.get(nack.Receipt)
			if !ok || nack.Mode != driver.NackRelease || nack.Delay == 0 || nack.Delay > q.Traits().MaxDelay {
				return q.nackOne(ctx, nack)
			}
			if err := q.ackOne(ctx, nack.Receipt); err != nil {
				return renamed(err, "nack")
			}
			_, err := q.sendOne(ctx, driver.Outgoing{Body: d.Body, Attributes: d.Attributes, Group: d.Group, Delay: nack.Delay})
			return err
		})}},
	{Name: "takes-any-mode", Breaks: "FLOW-4",
		What: "A nack with an unknown mode is one of a failed delivery.",
		on: hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) {
			set(nack.Mode > driver.NackPutBack, &nack.Mode, driver.NackFailed)
		})}},
	{Name: "denies-that-it-releases", Breaks: "FLOW-4",
		What: "A queue that can release messages says that it cannot.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.Release = false })}},
	{Name: "redrives-with-releases", Breaks: "FLOW-4",
		What: "A redriven message has used up the releases of its earlier life.",
		on: hooks{nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			d, ok := q.delivered.get(nack.Receipt)
			books := state[releases](q)
			if ok && nack.Mode != driver.NackFailed && add(&books.row, d.ID, 1) > driver.MaxReleases && books.redriven.at(d.ID) {
				nack.Mode = driver.NackFailed
			}
			return q.nackOne(ctx, nack)
		}), redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			letters, err := collect(q.DeadLetters(ctx))
			if err != nil {
				return 0, err
			}
			for _, letter := range letters {
				state[releases](q).redriven.put(letter.ID, true)
			}
			return q.Redrive(ctx, ids, limit)
		}}},
	{Name: "forgets-releases-on-restart", Breaks: "FLOW-4",
		What: "After a restart a message can be released as often as a new one.",
		after: &hooks{
			nack: afterEach((*queue).Nack, func(q *queue, nack driver.Nack) { state[releases](q).note(q, nack) }),
			receive: alterDelivered(func(q *queue, d *driver.Delivery) {
				set(state[releases](q).row.at(d.ID) > 0, &d.Deliveries, 1)
			}),
		}},
}

// releases are how often messages were given back uncounted, by id.
type releases struct {
	row      counts // since the last nack
	hidden   counts // how many of them counted, which receivers are not told
	redriven marks
}

// note counts a release, and returns how many there were in a row. A nack is 0.
func (r *releases) note(q *queue, nack driver.Nack) int {
	id := q.idOf(nack.Receipt)
	if nack.Mode == driver.NackFailed {
		r.row.drop(id)
		return 0
	}
	return add(&r.row, id, 1)
}

// idOf returns the id of the message that was delivered with a receipt.
func (q *queue) idOf(receipt driver.Receipt) string {
	d, _ := q.delivered.get(receipt)
	return d.ID
}

// changeMode gives messages back in another mode.
func changeMode(from, to driver.NackMode) hooks {
	return hooks{nack: alterEach((*queue).Nack, func(_ *queue, nack *driver.Nack) { set(nack.Mode == from, &nack.Mode, to) })}
}
