package faulty

import (
	"context"
	"maps"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var deadLetterFaults = []Saboteur{
	{Name: "delivers-once-too-often", Breaks: "DLQ-1",
		What: "A message is delivered once more than MaxDeliveries allows.",
		on:   hooks{config: func(c *driver.Config) { set(c.MaxDeliveries > 0, &c.MaxDeliveries, c.MaxDeliveries+1) }}},
	{Name: "kills-once-too-early", Breaks: "DLQ-1",
		What: "A message dies one delivery before MaxDeliveries.",
		on:   hooks{config: func(c *driver.Config) { set(c.MaxDeliveries > 1, &c.MaxDeliveries, c.MaxDeliveries-1) }}},
	{Name: "loses-the-reason", Breaks: "DLQ-1", Also: []string{"DLQ-4"},
		What: "A dead letter has the reason fatal, whatever reason was given.",
		on: hooks{deadLetter: alterEach((*queue).DeadLetter, func(_ *queue, request *driver.DeadLetterRequest) {
			set(request.Reason.Valid(), &request.Reason, driver.ReasonFatal)
		})}},
	{Name: "takes-any-reason", Breaks: "DLQ-1",
		What: "An unknown reason becomes fatal.",
		on: hooks{deadLetter: alterEach((*queue).DeadLetter, func(_ *queue, request *driver.DeadLetterRequest) {
			set(!request.Reason.Valid(), &request.Reason, driver.ReasonFatal)
		})}},
	{Name: "shifts-dead-letter-errors", Breaks: "DLQ-1",
		What: "The errors of a batch of dead letters are one position too late.",
		on:   hooks{deadLetter: shiftErrors((*queue).DeadLetter)}},
	{Name: "moves-in-two-steps", Breaks: "DLQ-1",
		What: "While a message is dead-lettered, it is for a moment in no state.",
		on: hooks{
			deadLetter: func(q *queue, ctx context.Context, requests []driver.DeadLetterRequest) error {
				moving := state[atomic.Int64](q)
				moving.Add(1)
				defer moving.Add(-1)
				for range 100 { // so that others can read Stats, on a busy machine too
					runtime.Gosched()
				}
				return q.DeadLetter(ctx, requests)
			},
			stats: alterStats(func(q *queue, stats *driver.Stats) {
				stats.InFlight = max(stats.InFlight-int(state[atomic.Int64](q).Load()), 0)
			}),
		}},
	{Name: "spares-the-extended-to-zero", Breaks: "DLQ-1",
		What: "A lease at the delivery limit that is ended by an extend to zero does not dead-letter the message.",
		on: hooks{extend: extendOneByOne(func(q *queue, ctx context.Context, extension driver.Extension) ([]time.Duration, error) {
			d, ok := q.delivered.get(extension.Receipt)
			if limit := q.config().MaxDeliveries; !ok || limit == 0 || extension.Visibility > 0 || d.Deliveries < limit {
				return q.extendOne(ctx, extension)
			}
			err := q.ackOne(ctx, extension.Receipt)
			if err == nil {
				_, err = q.sendOne(ctx, again(d.Message))
			}
			return nil, err
		})}},
	{Name: "drops-what-should-die", Breaks: "DLQ-1",
		What: "A message that a nack should dead-letter is removed.",
		on: hooks{nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			d, ok := q.delivered.get(nack.Receipt)
			if limit := q.config().MaxDeliveries; ok && limit > 0 && d.Deliveries >= limit {
				return q.ackOne(ctx, nack.Receipt)
			}
			return q.nackOne(ctx, nack)
		})}},

	{Name: "loses-the-last-error-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter has no last error.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.LastError = "" })}},
	{Name: "loses-the-error-type-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter has no error type.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.ErrorType = "" })}},
	{Name: "dates-first-delivery-by-death", Breaks: "DLQ-4",
		What: "A dead letter has the time of its death as that of its first delivery.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.FirstReceivedAt = letter.DeadAt })}},
	{Name: "dates-death-by-listing", Breaks: "DLQ-4", Also: []string{"DLQ-5"},
		What: "A dead letter has the time of the listing as that of its death.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.DeadAt = time.Now().UTC() })}},
	{Name: "loses-the-source", Breaks: "DLQ-4",
		What: "A dead letter has no source queue.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.Source = "" })}},
	{Name: "loses-attributes-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter lacks an attribute.",
		on: hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) {
			letter.Attributes = maps.Clone(letter.Attributes)
			delete(letter.Attributes, "k")
		})}},
	{Name: "counts-no-deliveries-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter has no delivery count.",
		on:   hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.Deliveries = 0 })}},
	{Name: "cuts-errors-inside-a-character", Breaks: "DLQ-4",
		What: "A long error of a dead letter is cut inside a character.",
		on: hooks{deadLetter: alterEach((*queue).DeadLetter, func(_ *queue, request *driver.DeadLetterRequest) {
			request.Error = request.Error[:min(len(request.Error), driver.MaxCauseBytes)]
		})}},
	{Name: "refuses-long-errors", Breaks: "DLQ-4",
		What: "Dead-lettering with an error that is too long is refused.",
		on: hooks{deadLetter: alterEach((*queue).DeadLetter, func(_ *queue, request *driver.DeadLetterRequest) {
			set(len(request.Error) > driver.MaxCauseBytes, &request.Reason, "")
		})}},
}
