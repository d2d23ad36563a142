package faulty

import (
	"context"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

var endingFaults = []Saboteur{
	{
		Name: "tells-of-no-forwarded-death", Breaks: "OBS-1",
		What: "A death is not reported if the dead letter is forwarded.",
		Wrap: tells(func(b *wrapper, ending driver.Ending) []driver.Ending {
			if b.askedFor(ending.Queue).DeadLetterTo != "" {
				return nil
			}
			return []driver.Ending{ending}
		}),
	},
	{
		Name: "tells-of-one-death-for-each-message", Breaks: "OBS-1",
		What: "A message that is redriven and dies again is reported once.",
		Wrap: tellsOnce,
	},
	{
		Name: "tells-deaths-twice", Breaks: "OBS-1",
		What: "Each death is reported twice.",
		Wrap: tells(func(_ *wrapper, ending driver.Ending) []driver.Ending { return []driver.Ending{ending, ending} }),
	},
	{
		Name: "tells-a-wrong-reason", Breaks: "OBS-1",
		What: "Every death is reported as fatal.",
		Wrap: tells(func(_ *wrapper, ending driver.Ending) []driver.Ending {
			ending.Reason = driver.ReasonFatal
			return []driver.Ending{ending}
		}),
	},
	{
		Name: "tells-only-some-of-many", Breaks: "OBS-1",
		What: "Deaths are lost when very many of them are reported at once.",
		Wrap: tells(func(_ *wrapper, ending driver.Ending) []driver.Ending {
			if ending.ID == "" {
				return nil
			}
			return []driver.Ending{ending}
		}),
	},
	{
		Name: "measures-no-bytes", Breaks: "OBS-1",
		What: "Usage counts messages but not their bytes.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return measuresNoBytes{q} }),
	},
	{
		Name: "says-that-all-is-in-the-first-shard", Breaks: "ORD-3",
		What: "Every delivery is reported as from shard 0.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return namesNoShard{q} }),
	},
	{
		Name: "removes-dead-letters-without-a-trace", Breaks: "RET-1",
		What: "A dead letter past its retention is removed and not reported.",
		Wrap: tells(withoutKind(driver.EndingRemoved)),
	},
	{
		Name: "drops-without-a-trace", Breaks: "RET-2",
		What: "A message that is dropped is not reported.",
		Wrap: tells(withoutKind(driver.EndingDropped)),
	},
}

type measuresNoBytes struct{ passThrough }

func (q measuresNoBytes) Usage(ctx context.Context) (driver.Usage, error) {
	usage, err := q.Queue.Usage(ctx)
	for i := range usage.Shards {
		usage.Shards[i].Bytes = 0
	}
	return usage, err
}

type namesNoShard struct{ passThrough }

func (q namesNoShard) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	deliveries, err := q.Queue.Receive(ctx, req)
	for i := range deliveries {
		deliveries[i].Shard = 0
	}
	return deliveries, err
}

func withoutKind(kind driver.EndingKind) func(*wrapper, driver.Ending) []driver.Ending {
	return func(_ *wrapper, ending driver.Ending) []driver.Ending {
		if ending.Kind == kind {
			return nil
		}
		return []driver.Ending{ending}
	}
}

// tells changes the endings that observers get.
func tells(change func(*wrapper, driver.Ending) []driver.Ending) func(driver.Opener) driver.Opener {
	return func(inner driver.Opener) driver.Opener {
		b := newWrapper(inner)
		b.onEnding = func(ending driver.Ending) []driver.Ending { return change(b, ending) }
		return withAbilitiesOf(b, inner)
	}
}

func tellsOnce(inner driver.Opener) driver.Opener {
	var mu sync.Mutex // guards told
	told := make(map[string]bool)
	return tells(func(_ *wrapper, ending driver.Ending) []driver.Ending {
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
func (b *wrapper) Observe(f func(driver.Ending)) (stop func()) {
	return b.inner.(driver.Observable).Observe(func(ending driver.Ending) {
		for _, told := range b.onEnding(ending) {
			f(told)
		}
	})
}

// askedFor returns the configuration that was asked for.
func (b *wrapper) askedFor(queue string) driver.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[queue]
}
