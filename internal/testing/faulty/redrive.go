package faulty

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

var redriveFaults = []Saboteur{
	{Name: "changes-the-id-on-redrive", Breaks: "DLQ-5",
		What: "A redriven message has a new id.",
		on: hooks{
			redrive: beforeRedrive(func(q *queue, letter driver.DeadLetter) { state[texts](q).put(letter.ID, ulid.Make().String()) }),
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { state[texts](q).load(d.ID, &d.ID) }),
		}},
	{Name: "keeps-the-count-on-redrive", Breaks: "DLQ-5",
		What: "A redriven message keeps its delivery count.",
		on: hooks{receive: countOn, redrive: beforeRedrive(func(q *queue, letter driver.DeadLetter) {
			add(state[counts](q), letter.ID, letter.Deliveries)
		})}},
	{Name: "consults-dedup-on-redrive", Breaks: "DLQ-5", Also: []string{"DUP-3"},
		What: "A dead letter whose key is in use counts as a duplicate and is dropped by its redrive.",
		on: hooks{
			send: afterSend(func(q *queue, msg driver.Outgoing, sent *driver.Sent) {
				if msg.DedupKey != "" {
					state[marks](q).put(sent.ID, true)
				}
			}),
			redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
				letters, err := collect(q.DeadLetters(ctx))
				if err != nil {
					return 0, err
				}
				dropped := 0
				for _, letter := range letters {
					if state[marks](q).at(letter.ID) && wanted(ids, letter) {
						n, _ := q.Discard(ctx, []string{letter.ID})
						dropped += n
					}
				}
				moved, err := q.Redrive(ctx, ids, limit)
				return moved + dropped, err
			},
		}},
	{Name: "forgets-redrives", Breaks: "DLQ-5",
		What: "The redrives of a message are not counted.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.Redrives = 0 })}},
	{Name: "forgets-the-first-delivery-on-redrive", Breaks: "DLQ-5",
		What: "The first delivery after a redrive counts as the first of all.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { set(d.Deliveries == 1, &d.FirstReceivedAt, time.Now().UTC()) })}},
	{Name: "copies-on-redrive", Breaks: "DLQ-5",
		What: "A redriven message stays among the dead letters.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (moved int, err error) {
			letters, err := collect(q.DeadLetters(ctx))
			if err != nil || limit > 0 {
				return 0, err
			}
			for _, letter := range letters {
				if wanted(ids, letter) {
					if _, err := q.sendOne(ctx, again(letter.Message)); err != nil {
						return moved, err
					}
					moved++
				}
			}
			return moved, nil
		}}},
	{Name: "takes-no-ids-for-all", Breaks: "DLQ-5",
		What: "A redrive of an empty list of ids redrives everything.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			if len(ids) == 0 {
				ids = nil
			}
			return q.Redrive(ctx, ids, limit)
		}}},
	{Name: "ignores-the-limit-of-a-redrive", Breaks: "DLQ-5",
		What: "A redrive ignores its limit.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, _ int) (int, error) {
			return q.Redrive(ctx, ids, 0)
		}}},
	{Name: "redrives-the-youngest-first", Breaks: "DLQ-5",
		What: "A redrive with a limit moves the latest deaths.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			letters, err := collect(q.DeadLetters(ctx))
			if err != nil || limit == 0 {
				return q.Redrive(ctx, ids, limit)
			}
			youngest := []string{}
			for _, letter := range slices.Backward(letters) {
				if len(youngest) < limit && wanted(ids, letter) {
					youngest = append(youngest, letter.ID)
				}
			}
			return q.Redrive(ctx, youngest, limit)
		}}},
	{Name: "lists-the-youngest-first", Breaks: "DLQ-5",
		What: "Dead letters are listed latest death first.",
		on:   hooks{deadLetters: listBackwards}},
	{Name: "redrives-beyond-capacity", Breaks: "DLQ-5",
		What: "A redrive ignores the bound on messages.",
		on:   hooks{redrive: redriveBeyond(func(c *driver.Config) { c.MaxMessages = 0 })}},
	{Name: "redrives-beyond-the-bound-on-bytes", Breaks: "DLQ-5",
		What: "A redrive ignores the bound on bytes.",
		on:   hooks{redrive: redriveBeyond(func(c *driver.Config) { c.MaxBytes = 0 })}},
	{Name: "counts-a-redrive-in-two-steps", Breaks: "DLQ-5",
		What: "A redrive counts first and moves later, so that concurrent redrives count dead letters twice.",
		on: hooks{redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			letters, err := collect(q.DeadLetters(ctx))
			if err != nil || ids != nil || limit > 0 {
				return q.Redrive(ctx, ids, limit)
			}
			yieldToOthers()
			moved, err := q.Redrive(ctx, ids, limit)
			if err != nil {
				return moved, err
			}
			return len(letters), nil
		}}},
	{Name: "redrives-to-the-head", Breaks: "DLQ-5",
		What: "A redriven message is delivered before the waiting messages.",
		on: hooks{
			redrive: beforeRedrive(func(q *queue, letter driver.DeadLetter) { state[marks](q).put(letter.ID, true) }),
			receive: afterReceive(func(q *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
				redriven := state[marks](q)
				slices.SortStableFunc(got, func(a, b driver.Delivery) int { return order(redriven.at(a.ID), redriven.at(b.ID)) })
				return got
			}),
		}},
	{Name: "counts-unknown-ids-as-discarded", Breaks: "DLQ-5",
		What: "A discard returns the number of ids instead of the number of removed dead letters.",
		on: hooks{discard: func(q *queue, ctx context.Context, ids []string) (int, error) {
			_, err := q.Discard(ctx, ids)
			return len(ids), err
		}}},
	{Name: "purges-all-with-the-dead", Breaks: "DLQ-5",
		What: "Purging the dead letters purges the queue.",
		on:   hooks{purgeDead: both((*queue).Purge, (*queue).PurgeDead)}},
	{Name: "ends-a-listing-early", Breaks: "DLQ-5",
		What: "A listing of dead letters ends when one of them is discarded during the listing.",
		on: hooks{deadLetters: func(q *queue, ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
			return func(yield func(driver.DeadLetter, error) bool) {
				before, _ := q.Stats(ctx)
				for letter, err := range q.DeadLetters(ctx) {
					now, _ := q.Stats(ctx)
					if now.Dead < before.Dead || !yield(letter, err) {
						return
					}
				}
			}
		}}},

	{Name: "makes-room-among-the-dead", Breaks: "DLQ-5",
		What: "When the dead letters are full, the oldest is removed.",
		on: hooks{config: func(c *driver.Config) {
			if c.MaxDead > 0 {
				c.RetainDead.Count, c.MaxDead = c.MaxDead, 0
			}
		}}},
	{Name: "lets-the-dead-overflow", Breaks: "DLQ-5",
		What: "MaxDead does not bound the dead letters.",
		on:   hooks{config: func(c *driver.Config) { c.MaxDead = 0 }}},
	{Name: "loses-the-lease-when-the-dead-are-full", Breaks: "DLQ-5",
		What: "Dead-lettering into a full store ends the lease.",
		on: hooks{deadLetter: oneByOne(func(q *queue, ctx context.Context, request driver.DeadLetterRequest) error {
			err := q.deadLetterOne(ctx, request)
			if ofBatch(err) && driver.RetryAfter(err) > 0 {
				_ = q.nackOne(ctx, driver.Nack{Receipt: request.Receipt})
			}
			return err
		})}},
}

// listBackwards lists dead letters latest death first.
func listBackwards(q *queue, ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return rearranged(q.DeadLetters(ctx), slices.Reverse)
}

// wanted reports whether a redrive of these ids, where nil means all, includes a dead letter.
func wanted(ids []string, letter driver.DeadLetter) bool {
	return ids == nil || slices.Contains(ids, letter.ID)
}

// beforeRedrive calls see with all dead letters before each redrive.
func beforeRedrive(see func(q *queue, letter driver.DeadLetter)) func(*queue, context.Context, []string, int) (int, error) {
	return func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
		letters, err := collect(q.DeadLetters(ctx))
		if err != nil {
			return 0, err
		}
		for _, letter := range letters {
			see(q, letter)
		}
		return q.Redrive(ctx, ids, limit)
	}
}

// redriveBeyond lifts a bound during each redrive.
func redriveBeyond(lift func(*driver.Config)) func(*queue, context.Context, []string, int) (int, error) {
	return func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
		if q.config() == (driver.Config{}) {
			return q.Redrive(ctx, ids, limit)
		}
		if err := q.reconfigure(ctx, lift); err != nil {
			return 0, err
		}
		moved, err := q.Redrive(ctx, ids, limit)
		return moved, errors.Join(err, q.reconfigure(ctx, func(*driver.Config) {}))
	}
}
