package faulty

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

var redriveFaults = []Saboteur{
	{
		Name: "changes-the-id-on-redrive", Breaks: "DLQ-5",
		What: "A redriven message has a new id.",
		Wrap: perQueue(func(q passThrough, ids *table[string, string]) driver.Queue { return changesID{q, ids} }),
	},
	{
		Name: "keeps-the-count-on-redrive", Breaks: "DLQ-5",
		What: "A redriven message keeps its delivery count.",
		Wrap: perQueue(func(q passThrough, before *table[string, int]) driver.Queue { return keepsCount{q, before} }),
	},
	{
		Name: "consults-dedup-on-redrive", Breaks: "DLQ-5", Also: []string{"DUP-3"},
		What: "A dead letter whose key is in use counts as a duplicate and is dropped by its redrive.",
		Wrap: perQueue(func(q passThrough, keys *table[string, bool]) driver.Queue { return consultsDedup{q, keys} }),
	},
	{
		Name: "forgets-redrives", Breaks: "DLQ-5",
		What: "The redrives of a message are not counted.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.Redrives = 0 }}
		}),
	},
	{
		Name: "forgets-the-first-delivery-on-redrive", Breaks: "DLQ-5",
		What: "The first delivery after a redrive counts as the first of all.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Deliveries == 1 {
					d.FirstReceivedAt = time.Now().UTC()
				}
			}}
		}),
	},
	{
		Name: "copies-on-redrive", Breaks: "DLQ-5",
		What: "A redriven message stays among the dead letters.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return copiesOnRedrive{q} }),
	},
	{
		Name: "takes-no-ids-for-all", Breaks: "DLQ-5",
		What: "A redrive of an empty list of ids redrives everything.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRedrive{q, func(ids []string, limit int) ([]string, int) {
				if len(ids) == 0 {
					ids = nil
				}
				return ids, limit
			}}
		}),
	},
	{
		Name: "ignores-the-limit-of-a-redrive", Breaks: "DLQ-5",
		What: "A redrive ignores its limit.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRedrive{q, func(ids []string, _ int) ([]string, int) { return ids, 0 }}
		}),
	},
	{
		Name: "redrives-the-youngest-first", Breaks: "DLQ-5",
		What: "A redrive with a limit moves the latest deaths.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return redrivesYoungest{q} }),
	},
	{
		Name: "lists-the-youngest-first", Breaks: "DLQ-5",
		What: "Dead letters are listed latest death first.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return listsYoungest{q} }),
	},
	{
		Name: "redrives-beyond-capacity", Breaks: "DLQ-5",
		What: "A redrive ignores the bound on messages.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return redrivesBeyond{q, func(config *driver.Config) { config.MaxMessages = 0 }}
		}),
	},
	{
		Name: "redrives-beyond-the-bound-on-bytes", Breaks: "DLQ-5",
		What: "A redrive ignores the bound on bytes.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return redrivesBeyond{q, func(config *driver.Config) { config.MaxBytes = 0 }}
		}),
	},
	{
		Name: "counts-a-redrive-in-two-steps", Breaks: "DLQ-5",
		What: "A redrive counts first and moves later, so that concurrent redrives count dead letters twice.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return countsThenRedrives{q} }),
	},
	{
		Name: "redrives-to-the-head", Breaks: "DLQ-5",
		What: "A redriven message is delivered before the waiting messages.",
		Wrap: perQueue(func(q passThrough, first *table[string, bool]) driver.Queue { return redrivesToHead{q, first} }),
	},
	{
		Name: "counts-unknown-ids-as-discarded", Breaks: "DLQ-5",
		What: "A discard returns the number of ids instead of the number of removed dead letters.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return countsUnknown{q} }),
	},
	{
		Name: "purges-all-with-the-dead", Breaks: "DLQ-5",
		What: "Purging the dead letters purges the queue.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return purgesAllWithDead{q} }),
	},
	{
		Name: "ends-a-listing-early", Breaks: "DLQ-5",
		What: "A listing of dead letters ends when one of them is discarded during the listing.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return endsListing{q} }),
	},

	{
		Name: "makes-room-among-the-dead", Breaks: "DLQ-5",
		What: "When the dead letters are full, the oldest is removed.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.MaxDead > 0 {
				config.RetainDead.Count, config.MaxDead = config.MaxDead, 0
			}
		}),
	},
	{
		Name: "lets-the-dead-overflow", Breaks: "DLQ-5",
		What: "MaxDead does not bound the dead letters.",
		Wrap: changesConfig(func(config *driver.Config) { config.MaxDead = 0 }),
	},
	{
		Name: "loses-the-lease-when-the-dead-are-full", Breaks: "DLQ-5",
		What: "Dead-lettering into a full store ends the lease.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return losesLeaseWhenFull{q} }),
	},
}

// letters returns the dead letters, oldest death first.
func (q passThrough) letters(ctx context.Context) (letters []driver.DeadLetter, err error) {
	for letter, err := range q.Queue.DeadLetters(ctx) {
		if err != nil {
			return nil, err
		}
		letters = append(letters, letter)
	}
	return letters, nil
}

type changesID struct {
	passThrough
	ids *table[string, string]
}

func (q changesID) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, err := q.letters(ctx)
	if err != nil {
		return 0, err
	}
	for _, letter := range letters {
		q.ids.put(letter.ID, ulid.Make().String())
	}
	return q.Queue.Redrive(ctx, ids, limit)
}

func (q changesID) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		if id, ok := q.ids.get(got[i].ID); ok {
			got[i].ID = id
		}
	}
	return got, err
}

type keepsCount struct {
	passThrough
	before *table[string, int]
}

func (q keepsCount) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, err := q.letters(ctx)
	if err != nil {
		return 0, err
	}
	for _, letter := range letters {
		add(q.before, letter.ID, letter.Deliveries)
	}
	return q.Queue.Redrive(ctx, ids, limit)
}

func (q keepsCount) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		before, _ := q.before.get(got[i].ID)
		got[i].Deliveries += before
	}
	return got, err
}

type consultsDedup struct {
	passThrough
	keyed *table[string, bool] // message ids
}

func (q consultsDedup) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range sent {
		if msgs[i].DedupKey != "" {
			q.keyed.put(sent[i].ID, true)
		}
	}
	return sent, err
}

func (q consultsDedup) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, err := q.letters(ctx)
	if err != nil {
		return 0, err
	}
	dropped := 0
	for _, letter := range letters {
		if keyed, _ := q.keyed.get(letter.ID); keyed && (ids == nil || slices.Contains(ids, letter.ID)) {
			n, _ := q.Discard(ctx, []string{letter.ID})
			dropped += n
		}
	}
	moved, err := q.Queue.Redrive(ctx, ids, limit)
	return moved + dropped, err
}

type copiesOnRedrive struct{ passThrough }

func (q copiesOnRedrive) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, err := q.letters(ctx)
	if err != nil || limit > 0 {
		return 0, err
	}
	moved := 0
	for _, letter := range letters {
		if ids == nil || slices.Contains(ids, letter.ID) {
			if _, err := q.sendOne(ctx, again(letter.Message)); err != nil {
				return moved, err
			}
			moved++
		}
	}
	return moved, nil
}

// changesRedrive changes redrive requests.
type changesRedrive struct {
	passThrough
	change func(ids []string, limit int) ([]string, int)
}

func (q changesRedrive) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	ids, limit = q.change(ids, limit)
	return q.Queue.Redrive(ctx, ids, limit)
}

type redrivesYoungest struct{ passThrough }

func (q redrivesYoungest) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, err := q.letters(ctx)
	if err != nil || limit == 0 {
		return q.Queue.Redrive(ctx, ids, limit)
	}
	var youngest []string
	for _, letter := range slices.Backward(letters) {
		if len(youngest) < limit && (ids == nil || slices.Contains(ids, letter.ID)) {
			youngest = append(youngest, letter.ID)
		}
	}
	if youngest == nil {
		return 0, nil
	}
	return q.Queue.Redrive(ctx, youngest, limit)
}

type listsYoungest struct{ passThrough }

func (q listsYoungest) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		letters, err := q.letters(ctx)
		if err != nil {
			yield(driver.DeadLetter{}, err)
			return
		}
		for _, letter := range slices.Backward(letters) {
			if !yield(letter, nil) {
				return
			}
		}
	}
}

type redrivesBeyond struct {
	passThrough
	unbound func(*driver.Config)
}

func (q redrivesBeyond) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	if q.config() == (driver.Config{}) {
		return q.Queue.Redrive(ctx, ids, limit)
	}
	if err := q.reconfigure(ctx, q.unbound); err != nil {
		return 0, err
	}
	moved, err := q.Queue.Redrive(ctx, ids, limit)
	if err := q.reconfigure(ctx, func(*driver.Config) {}); err != nil {
		return moved, err
	}
	return moved, err
}

type countsThenRedrives struct{ passThrough }

func (q countsThenRedrives) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	if ids != nil || limit > 0 {
		return q.Queue.Redrive(ctx, ids, limit)
	}
	letters, err := q.letters(ctx)
	if err != nil {
		return 0, err
	}
	yieldToOthers()
	moved, err := q.Queue.Redrive(ctx, ids, limit)
	if err != nil {
		return moved, err
	}
	return len(letters), nil
}

// redrivesToHead sorts redriven messages to the front of each batch.
type redrivesToHead struct {
	passThrough
	redriven *table[string, bool]
}

func (q redrivesToHead) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, err := q.letters(ctx)
	if err != nil {
		return 0, err
	}
	for _, letter := range letters {
		q.redriven.put(letter.ID, true)
	}
	return q.Queue.Redrive(ctx, ids, limit)
}

func (q redrivesToHead) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	slices.SortStableFunc(got, func(a, b driver.Delivery) int {
		first, _ := q.redriven.get(a.ID)
		second, _ := q.redriven.get(b.ID)
		switch {
		case first && !second:
			return -1
		case second && !first:
			return 1
		}
		return 0
	})
	return got, err
}

type countsUnknown struct{ passThrough }

func (q countsUnknown) Discard(ctx context.Context, ids []string) (int, error) {
	_, err := q.Queue.Discard(ctx, ids)
	return len(ids), err
}

type purgesAllWithDead struct{ passThrough }

func (q purgesAllWithDead) PurgeDead(ctx context.Context) (int, error) {
	if _, err := q.Queue.Purge(ctx); err != nil {
		return 0, err
	}
	return q.Queue.PurgeDead(ctx)
}

type endsListing struct{ passThrough }

func (q endsListing) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		before, _ := q.Queue.Stats(ctx)
		for letter, err := range q.Queue.DeadLetters(ctx) {
			now, _ := q.Queue.Stats(ctx)
			if now.Dead < before.Dead || !yield(letter, err) {
				return
			}
		}
	}
}

type losesLeaseWhenFull struct{ passThrough }

func (q losesLeaseWhenFull) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return each(requests, func(request driver.DeadLetterRequest) error {
		err := q.Queue.DeadLetter(ctx, []driver.DeadLetterRequest{request})
		if ofBatch(err) && driver.RetryAfter(err) > 0 {
			_ = q.Queue.Nack(ctx, []driver.Nack{{Receipt: request.Receipt}})
		}
		return err
	})
}
