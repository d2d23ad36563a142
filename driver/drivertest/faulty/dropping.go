package faulty

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var droppers = []Saboteur{
	{
		Name: "keeps-the-dropped-as-dead", Breaks: "RET-2",
		What: "A message that waited too long becomes a dead letter, whatever the queue says.",
		Wrap: misreads(func(config *driver.Config) { config.DropExpired = false }),
	},
	{
		Name: "sends-the-dropped-where-the-dead-go", Breaks: "RET-2",
		What: "A message that waited too long goes to the queue for the dead, if there is one.",
		Wrap: misreads(func(config *driver.Config) { config.DropExpired = config.DropExpired && config.DeadLetterTo == "" }),
	},
	{
		Name: "drops-nothing-while-the-dead-are-full", Breaks: "RET-2",
		What: "Where dead letters are bounded, a message that waited too long becomes one, or waits for room.",
		Wrap: misreads(func(config *driver.Config) { config.DropExpired = config.DropExpired && config.MaxDead == 0 }),
	},
	{
		Name: "drops-late", Breaks: "RET-2",
		What: "A message is dropped a tenth of a second late.",
		Wrap: misreads(func(config *driver.Config) {
			if config.DropExpired && config.RetainReady.Age > 0 {
				config.RetainReady.Age += 100 * time.Millisecond
			}
		}),
	},
	{
		Name: "drops-too-few", Breaks: "RET-2",
		What: "One message more than asked for is kept where others are dropped.",
		Wrap: misreads(func(config *driver.Config) {
			if config.DropExpired && config.RetainReady.Count > 0 {
				config.RetainReady.Count++
			}
		}),
	},
	{
		Name: "drops-the-worn-out", Breaks: "RET-2",
		What: "Where old messages are dropped, those that were delivered too often are dropped as well.",
		Wrap: perHandle(func(q passing) handle { return dropsWornOut{q} }),
	},
}

type dropsWornOut struct{ passing }

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
