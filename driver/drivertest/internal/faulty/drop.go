package faulty

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var dropFaults = []Saboteur{
	{
		Name: "keeps-the-dropped-as-dead", Breaks: "RET-2",
		What: "A message that waited too long becomes a dead letter, although the queue drops expired messages.",
		Wrap: changesConfig(func(config *driver.Config) { config.DropExpired = false }),
	},
	{
		Name: "sends-the-dropped-where-the-dead-go", Breaks: "RET-2",
		What: "A message that waited too long goes to the dead-letter queue, if there is one.",
		Wrap: changesConfig(func(config *driver.Config) { config.DropExpired = config.DropExpired && config.DeadLetterTo == "" }),
	},
	{
		Name: "drops-nothing-while-the-dead-are-full", Breaks: "RET-2",
		What: "If dead letters are bounded, a message that waited too long becomes one, or waits for room.",
		Wrap: changesConfig(func(config *driver.Config) { config.DropExpired = config.DropExpired && config.MaxDead == 0 }),
	},
	{
		Name: "drops-late", Breaks: "RET-2",
		What: "A message is dropped a tenth of a second late.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.DropExpired && config.RetainReady.Age > 0 {
				config.RetainReady.Age += 100 * time.Millisecond
			}
		}),
	},
	{
		Name: "drops-too-few", Breaks: "RET-2",
		What: "A queue that drops messages keeps one more than configured.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.DropExpired && config.RetainReady.Count > 0 {
				config.RetainReady.Count++
			}
		}),
	},
	{
		Name: "drops-the-worn-out", Breaks: "RET-2",
		What: "A queue that drops old messages also drops those that reached the delivery limit.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return dropsWornOut{q} }),
	},
}

type dropsWornOut struct{ passThrough }

func (q dropsWornOut) drop(ctx context.Context) {
	if !q.config().DropExpired {
		return
	}
	letters, _ := q.letters(ctx)
	for _, letter := range letters {
		if letter.Reason == driver.ReasonMaxDeliveries {
			_, _ = q.Discard(ctx, []string{letter.ID})
		}
	}
}

func (q dropsWornOut) Stats(ctx context.Context) (driver.Stats, error) {
	q.drop(ctx)
	return q.Queue.Stats(ctx)
}

func (q dropsWornOut) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	q.drop(ctx)
	return q.Queue.DeadLetters(ctx)
}
