package faulty

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var retentionFaults = []Saboteur{
	{
		Name: "drops-the-expired", Breaks: "RET-1",
		What: "A message that waited too long disappears and leaves no dead letter.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return dropsExpired{q} }),
	},
	{
		Name: "keeps-the-old", Breaks: "RET-1",
		What: "A message can wait without limit.",
		Wrap: changesConfig(func(config *driver.Config) { config.RetainReady.Age = 0 }),
	},
	{
		Name: "expires-late", Breaks: "RET-1",
		What: "A message that waited too long dies a tenth of a second late.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.RetainReady.Age > 0 {
				config.RetainReady.Age += 100 * time.Millisecond
			}
		}),
	},
	{
		Name: "counts-the-age-from-the-send", Breaks: "RET-1",
		What: "A message that was delayed for longer than messages are kept is dead when it is due.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return agesFromSend{q} }),
	},
	{
		Name: "counts-the-delayed-as-kept", Breaks: "RET-1",
		What: "A delayed message counts as one that is kept.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return countsDelayed{q} }),
	},
	{
		Name: "keeps-too-many", Breaks: "RET-1",
		What: "Any number of messages can wait.",
		Wrap: changesConfig(func(config *driver.Config) { config.RetainReady.Count = 0 }),
	},
	{
		Name: "keeps-the-old-dead", Breaks: "RET-1",
		What: "Dead letters are kept without limit.",
		Wrap: changesConfig(func(config *driver.Config) { config.RetainDead.Age = 0 }),
	},
	{
		Name: "keeps-too-many-dead", Breaks: "RET-1",
		What: "Any number of dead letters is kept.",
		Wrap: changesConfig(func(config *driver.Config) { config.RetainDead.Count = 0 }),
	},
	{
		Name: "calls-the-expired-worn-out", Breaks: "RET-1",
		What: "A message that waited too long has the reason max deliveries.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) {
				if letter.Reason == driver.ReasonExpired && q.config().RetainReady != (driver.Retention{}) {
					letter.Reason = driver.ReasonMaxDeliveries
				}
			}}
		}),
	},
	{
		Name: "makes-young-by-a-nack", Breaks: "RET-1",
		What: "A nack resets the age of a message.",
		Wrap: perQueue(func(q passThrough, books *nackCounts) driver.Queue { return resetsAge{q, books} }),
	},
	{
		Name: "does-not-make-young-by-a-redrive", Breaks: "RET-1",
		What: "A message that is too old cannot be redriven.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return redrivesNoOld{q} }),
	},
	{
		Name: "takes-the-old-from-their-holders", Breaks: "RET-1",
		What: "A message that is too old dies in flight, when its lease is extended.",
		Wrap: perQueue(func(q passThrough, delivered *deliveries) driver.Queue {
			return takesFromHolder{remembersDeliveries{q, delivered}}
		}),
	},
}

type dropsExpired struct{ passThrough }

func (q dropsExpired) drop(ctx context.Context) {
	if q.config().RetainReady == (driver.Retention{}) {
		return
	}
	letters, _ := q.letters(ctx)
	for _, letter := range letters {
		if letter.Reason == driver.ReasonExpired {
			_, _ = q.Discard(ctx, []string{letter.ID})
		}
	}
}

func (q dropsExpired) Stats(ctx context.Context) (driver.Stats, error) {
	q.drop(ctx)
	return q.Queue.Stats(ctx)
}

func (q dropsExpired) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	q.drop(ctx)
	return q.Queue.DeadLetters(ctx)
}

// resetsAge dead-letters and redrives nacked messages, because only a redrive resets the age of
// a message.
type resetsAge struct {
	passThrough
	*nackCounts
}

func (q resetsAge) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	return nacksToGroupTail(q).Receive(ctx, req)
}

func (q resetsAge) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		if q.config().RetainReady.Age == 0 || nack.Delay != 0 {
			return q.Queue.Nack(ctx, []driver.Nack{nack})
		}
		return nacksToGroupTail(q).deadLetterAndRedrive(ctx, nack)
	})
}

type redrivesNoOld struct{ passThrough }

func (q redrivesNoOld) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	letters, err := q.letters(ctx)
	age := q.config().RetainReady.Age
	if err != nil || age == 0 {
		return q.Queue.Redrive(ctx, ids, limit)
	}
	young := []string{}
	old := 0
	for _, letter := range letters {
		switch wanted := ids == nil || slices.Contains(ids, letter.ID); {
		case wanted && time.Since(letter.EnqueuedAt) < age:
			young = append(young, letter.ID)
		case wanted:
			old++
		}
	}
	moved, err := q.Queue.Redrive(ctx, young, limit)
	return moved + old, err
}

type takesFromHolder struct{ remembersDeliveries }

func (q takesFromHolder) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	for _, extension := range extensions {
		d, ok := q.delivered.get(extension.Receipt)
		if age := q.config().RetainReady.Age; ok && age > 0 && time.Since(d.EnqueuedAt) >= age {
			request := driver.DeadLetterRequest{Receipt: extension.Receipt, Reason: driver.ReasonExpired}
			_ = q.Queue.DeadLetter(ctx, []driver.DeadLetterRequest{request}) // it may be settled
		}
	}
	return q.Queue.Extend(ctx, extensions)
}

type agesFromSend struct{ passThrough }

func (q agesFromSend) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	age := q.config().RetainReady.Age
	return slices.DeleteFunc(got, func(d driver.Delivery) bool {
		old := age > 0 && d.Deliveries == 1 && time.Since(d.EnqueuedAt) >= age
		if old {
			_ = q.Queue.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonExpired}})
		}
		return old
	}), err
}

type countsDelayed struct{ passThrough }

func (q countsDelayed) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	for _, msg := range msgs {
		if msg.Delay > 0 && q.config().RetainReady.Count > 1 {
			if err := q.reconfigure(ctx, func(config *driver.Config) { config.RetainReady.Count-- }); err != nil {
				return nil, err
			}
		}
	}
	return q.Queue.Send(ctx, msgs)
}
