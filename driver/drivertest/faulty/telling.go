package faulty

import (
	"context"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

var tellers = []Saboteur{
	{
		Name: "tells-of-no-forwarded-death", Breaks: "OBS-1",
		What: "A death is not told if the queue sends its dead letters to another.",
		Wrap: tells(func(b *box, ending driver.Ending) []driver.Ending {
			if b.askedFor(ending.Queue).DeadLetterTo != "" {
				return nil
			}
			return []driver.Ending{ending}
		}),
	},
	{
		Name: "tells-of-one-death-for-each-message", Breaks: "OBS-1",
		What: "A message that is redriven and dies again is not told again.",
		Wrap: tellsOnce,
	},
	{
		Name: "tells-deaths-twice", Breaks: "OBS-1",
		What: "Each death is told twice.",
		Wrap: tells(func(_ *box, ending driver.Ending) []driver.Ending { return []driver.Ending{ending, ending} }),
	},
	{
		Name: "tells-a-wrong-reason", Breaks: "OBS-1",
		What: "Every death is said to be fatal.",
		Wrap: tells(func(_ *box, ending driver.Ending) []driver.Ending {
			ending.Reason = driver.ReasonFatal
			return []driver.Ending{ending}
		}),
	},
	{
		Name: "tells-only-some-of-many", Breaks: "OBS-1",
		What: "Of very many deaths only those are told that are told one by one.",
		Wrap: tells(func(_ *box, ending driver.Ending) []driver.Ending {
			if ending.ID == "" {
				return nil
			}
			return []driver.Ending{ending}
		}),
	},
	{
		Name: "measures-no-bytes", Breaks: "OBS-1",
		What: "Usage counts messages and not their bytes.",
		Wrap: perHandle(func(q passing) handle { return measuresNoBytes{q} }),
	},
	{
		Name: "says-that-all-is-in-the-first-shard", Breaks: "ORD-3",
		What: "Every delivery is said to be from shard 0.",
		Wrap: perHandle(func(q passing) handle { return namesNoShard{q} }),
	},
	{
		Name: "removes-dead-letters-without-a-trace", Breaks: "RET-1",
		What: "A dead letter past its retention is removed and not told.",
		Wrap: tells(withoutKind(driver.EndingRemoved)),
	},
	{
		Name: "drops-without-a-trace", Breaks: "RET-2",
		What: "A message that is dropped is not told.",
		Wrap: tells(withoutKind(driver.EndingDropped)),
	},
}

type measuresNoBytes struct{ passing }

func (q measuresNoBytes) Usage(ctx context.Context) (driver.Usage, error) {
	usage, err := q.Queue.Usage(ctx)
	for i := range usage.Shards {
		usage.Shards[i].Bytes = 0
	}
	return usage, err
}

type namesNoShard struct{ passing }

func (q namesNoShard) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	deliveries, err := q.Queue.Receive(ctx, req)
	for i := range deliveries {
		deliveries[i].Shard = 0
	}
	return deliveries, err
}

func withoutKind(kind driver.EndingKind) func(*box, driver.Ending) []driver.Ending {
	return func(_ *box, ending driver.Ending) []driver.Ending {
		if ending.Kind == kind {
			return nil
		}
		return []driver.Ending{ending}
	}
}

// tells spoils what observers hear.
func tells(change func(*box, driver.Ending) []driver.Ending) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener {
		b := newBox(inner)
		b.hear = func(ending driver.Ending) []driver.Ending { return change(b, ending) }
		return exposed(b, inner)
	}
}

func tellsOnce(inner driver.Opener) driver.Opener {
	var mu sync.Mutex // guards told
	told := make(map[string]bool)
	return tells(func(_ *box, ending driver.Ending) []driver.Ending {
		mu.Lock()
		defer mu.Unlock()
		if ending.ID != "" && told[ending.ID] && ending.Kind == driver.EndingDied {
			return nil
		}
		told[ending.ID] = true
		return []driver.Ending{ending}
	})(inner)
}

// Observe passes endings on.
func (b *box) Observe(f func(driver.Ending)) (stop func()) {
	return b.inner.(driver.Observable).Observe(func(ending driver.Ending) {
		for _, told := range b.hear(ending) {
			f(told)
		}
	})
}

// askedFor is the configuration that was asked for.
func (b *box) askedFor(queue string) driver.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[queue]
}
