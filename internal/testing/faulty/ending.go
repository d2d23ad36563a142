package faulty

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var endingFaults = []Saboteur{
	{Name: "tells-of-no-forwarded-death", Breaks: "OBS-1",
		What: "A death is not reported if the dead letter is forwarded.",
		on:   hooks{ending: tellOnly(func(b *wrapper, ending driver.Ending) bool { return b.askedFor(ending.Queue).DeadLetterTo == "" })}},
	{Name: "tells-of-one-death-for-each-message", Breaks: "OBS-1",
		What: "A message that is redriven and dies again is reported once.",
		on: hooks{ending: tellOnly(func(b *wrapper, ending driver.Ending) bool {
			times := add(state[counts](b), ending.ID, 1)
			return times == 1 || ending.ID == "" || ending.Kind != driver.EndingDied
		})}},
	{Name: "tells-deaths-twice", Breaks: "OBS-1",
		What: "Each death is reported twice.",
		on:   hooks{ending: func(_ *wrapper, ending driver.Ending) []driver.Ending { return []driver.Ending{ending, ending} }}},
	{Name: "tells-a-wrong-reason", Breaks: "OBS-1",
		What: "Every death is reported as fatal.",
		on: hooks{ending: func(_ *wrapper, ending driver.Ending) []driver.Ending {
			ending.Reason = driver.ReasonFatal
			return []driver.Ending{ending}
		}}},
	{Name: "tells-only-some-of-many", Breaks: "OBS-1",
		What: "Deaths are lost when very many of them are reported at once.",
		on:   hooks{ending: tellOnly(func(_ *wrapper, ending driver.Ending) bool { return ending.ID != "" })}},
	{Name: "measures-no-bytes", Breaks: "OBS-1",
		What: "Usage counts messages but not their bytes.",
		on: hooks{usage: func(q *queue, ctx context.Context) (driver.Usage, error) {
			usage, err := q.Usage(ctx)
			for i := range usage.Shards {
				usage.Shards[i].Bytes = 0
			}
			return usage, err
		}}},
	{Name: "says-that-all-is-in-the-first-shard", Breaks: "ORD-3",
		What: "Every delivery is reported as from shard 0.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.Shard = 0 })}},
	{Name: "removes-dead-letters-without-a-trace", Breaks: "RET-1",
		What: "A dead letter past its retention is removed and not reported.",
		on:   hooks{ending: tellOnly(func(_ *wrapper, ending driver.Ending) bool { return ending.Kind != driver.EndingRemoved })}},
	{Name: "drops-without-a-trace", Breaks: "RET-2",
		What: "A message that is dropped is not reported.",
		on:   hooks{ending: tellOnly(func(_ *wrapper, ending driver.Ending) bool { return ending.Kind != driver.EndingDropped })}},
}

// tellOnly reports some endings.
func tellOnly(tell func(b *wrapper, ending driver.Ending) bool) func(*wrapper, driver.Ending) []driver.Ending {
	return func(b *wrapper, ending driver.Ending) []driver.Ending {
		if tell(b, ending) {
			return []driver.Ending{ending}
		}
		return nil
	}
}
