package faulty

import (
	"context"
	"iter"
	"maps"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var deadLetterFaults = []Saboteur{
	{
		Name: "delivers-once-too-often", Breaks: "DLQ-1",
		What: "A message is delivered once more than MaxDeliveries allows.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.MaxDeliveries > 0 {
				config.MaxDeliveries++
			}
		}),
	},
	{
		Name: "kills-once-too-early", Breaks: "DLQ-1",
		What: "A message dies one delivery before MaxDeliveries.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.MaxDeliveries > 1 {
				config.MaxDeliveries--
			}
		}),
	},
	{
		Name: "loses-the-reason", Breaks: "DLQ-1", Also: []string{"DLQ-4"},
		What: "A dead letter has the reason fatal, whatever reason was given.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDeadLetterRequests{q, func(request *driver.DeadLetterRequest) {
				if request.Reason.Valid() {
					request.Reason = driver.ReasonFatal
				}
			}}
		}),
	},
	{
		Name: "takes-any-reason", Breaks: "DLQ-1",
		What: "An unknown reason becomes fatal.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDeadLetterRequests{q, func(request *driver.DeadLetterRequest) {
				if !request.Reason.Valid() {
					request.Reason = driver.ReasonFatal
				}
			}}
		}),
	},
	{
		Name: "shifts-dead-letter-errors", Breaks: "DLQ-1",
		What: "The errors of a batch of dead letters are one position too late.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsDeadLetterErrors{q} }),
	},
	{
		Name: "moves-in-two-steps", Breaks: "DLQ-1",
		What: "While a message is dead-lettered, it is for a moment in no state.",
		Wrap: perQueue(func(q passThrough, moving *atomic.Int64) driver.Queue { return movesInSteps{q, moving} }),
	},
	{
		Name: "spares-the-extended-to-zero", Breaks: "DLQ-1",
		What: "A lease at the delivery limit that is ended by an extend to zero does not dead-letter the message.",
		Wrap: perQueue(func(q passThrough, delivered *deliveries) driver.Queue {
			return sparesExtendedToZero{remembersDeliveries{q, delivered}}
		}),
	},
	{
		Name: "drops-what-should-die", Breaks: "DLQ-1",
		What: "A message that a nack should dead-letter is removed.",
		Wrap: perQueue(func(q passThrough, delivered *deliveries) driver.Queue {
			return dropsTheDying{remembersDeliveries{q, delivered}}
		}),
	},

	{
		Name: "loses-the-last-error-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter has no last error.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.LastError = "" }}
		}),
	},
	{
		Name: "loses-the-error-type-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter has no error type.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.ErrorType = "" }}
		}),
	},
	{
		Name: "dates-first-delivery-by-death", Breaks: "DLQ-4",
		What: "A dead letter has the time of its death as that of its first delivery.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.FirstReceivedAt = letter.DeadAt }}
		}),
	},
	{
		Name: "dates-death-by-listing", Breaks: "DLQ-4", Also: []string{"DLQ-5"},
		What: "A dead letter has the time of the listing as that of its death.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.DeadAt = time.Now().UTC() }}
		}),
	},
	{
		Name: "loses-the-source", Breaks: "DLQ-4",
		What: "A dead letter has no source queue.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.Source = "" }}
		}),
	},
	{
		Name: "loses-attributes-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter lacks an attribute.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) {
				letter.Attributes = maps.Clone(letter.Attributes)
				delete(letter.Attributes, "k")
			}}
		}),
	},
	{
		Name: "counts-no-deliveries-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter has no delivery count.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.Deliveries = 0 }}
		}),
	},
	{
		Name: "cuts-errors-inside-a-character", Breaks: "DLQ-4",
		What: "A long error of a dead letter is cut inside a character.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDeadLetterRequests{q, func(request *driver.DeadLetterRequest) {
				request.Error = request.Error[:min(len(request.Error), driver.MaxCauseBytes)]
			}}
		}),
	},
	{
		Name: "refuses-long-errors", Breaks: "DLQ-4",
		What: "Dead-lettering with an error that is too long is refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDeadLetterRequests{q, func(request *driver.DeadLetterRequest) {
				if len(request.Error) > driver.MaxCauseBytes {
					request.Reason = ""
				}
			}}
		}),
	},
}

// changesDeadLetterRequests changes each request before the backend gets it.
type changesDeadLetterRequests struct {
	passThrough
	change func(*driver.DeadLetterRequest)
}

func (q changesDeadLetterRequests) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	changed := append([]driver.DeadLetterRequest(nil), requests...)
	for i := range changed {
		q.change(&changed[i])
	}
	return q.Queue.DeadLetter(ctx, changed)
}

// changesDead changes each dead letter as it is listed.
type changesDead struct {
	passThrough
	change func(*driver.DeadLetter)
}

func (q changesDead) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return func(yield func(driver.DeadLetter, error) bool) {
		for letter, err := range q.Queue.DeadLetters(ctx) {
			q.change(&letter)
			if !yield(letter, err) {
				return
			}
		}
	}
}

type shiftsDeadLetterErrors struct{ passThrough }

func (q shiftsDeadLetterErrors) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return shifted(q.Queue.DeadLetter(ctx, requests), len(requests))
}

type movesInSteps struct {
	passThrough
	moving *atomic.Int64
}

func (q movesInSteps) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	q.moving.Add(1)
	runtime.Gosched() // so that others can read Stats
	err := q.Queue.DeadLetter(ctx, requests)
	q.moving.Add(-1)
	return err
}

func (q movesInSteps) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	stats.InFlight = max(stats.InFlight-int(q.moving.Load()), 0)
	return stats, err
}

type sparesExtendedToZero struct{ remembersDeliveries }

func (q sparesExtendedToZero) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return eachExtension(extensions, func(extension driver.Extension) ([]time.Duration, error) {
		d, ok := q.delivered.get(extension.Receipt)
		if limit := q.config().MaxDeliveries; !ok || limit == 0 || extension.Visibility > 0 || d.Deliveries < limit {
			return q.Queue.Extend(ctx, []driver.Extension{extension})
		}
		err := q.Queue.Ack(ctx, []driver.Receipt{extension.Receipt})
		if err == nil {
			_, err = q.sendOne(ctx, again(d.Message))
		}
		return nil, err
	})
}

type dropsTheDying struct{ remembersDeliveries }

func (q dropsTheDying) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		d, ok := q.delivered.get(nack.Receipt)
		if limit := q.config().MaxDeliveries; ok && limit > 0 && d.Deliveries >= limit {
			return q.Queue.Ack(ctx, []driver.Receipt{nack.Receipt})
		}
		return q.Queue.Nack(ctx, []driver.Nack{nack})
	})
}
