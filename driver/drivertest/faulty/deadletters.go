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

var undertakers = []Saboteur{
	{
		Name: "delivers-once-too-often", Breaks: "DLQ-1",
		What: "A message is delivered once more than MaxDeliveries allows.",
		Wrap: misreads(func(config *driver.Config) {
			if config.MaxDeliveries > 0 {
				config.MaxDeliveries++
			}
		}),
	},
	{
		Name: "kills-once-too-early", Breaks: "DLQ-1",
		What: "A message dies one delivery before MaxDeliveries.",
		Wrap: misreads(func(config *driver.Config) {
			if config.MaxDeliveries > 1 {
				config.MaxDeliveries--
			}
		}),
	},
	{
		Name: "loses-the-reason", Breaks: "DLQ-1", Also: []string{"DLQ-4"},
		What: "Whatever the reason given, the dead letter says fatal.",
		Wrap: perHandle(func(q passing) handle {
			return changesBurials{q, func(burial *driver.DeadLetterRequest) {
				if burial.Reason.Valid() {
					burial.Reason = driver.ReasonFatal
				}
			}}
		}),
	},
	{
		Name: "takes-any-reason", Breaks: "DLQ-1",
		What: "A reason that does not exist is taken for fatal.",
		Wrap: perHandle(func(q passing) handle {
			return changesBurials{q, func(burial *driver.DeadLetterRequest) {
				if !burial.Reason.Valid() {
					burial.Reason = driver.ReasonFatal
				}
			}}
		}),
	},
	{
		Name: "shifts-burial-errors", Breaks: "DLQ-1",
		What: "The errors of a batch of dead letters stand one position too late.",
		Wrap: perHandle(func(q passing) handle { return shiftsBurialErrors{q} }),
	},
	{
		Name: "moves-in-two-steps", Breaks: "DLQ-1",
		What: "While a message is dead-lettered it is for a moment nowhere.",
		Wrap: perQueue(func(q passing, moving *atomic.Int64) handle { return movesInSteps{q, moving} }),
	},
	{
		Name: "spares-the-extended-to-zero", Breaks: "DLQ-1",
		What: "A lease at the delivery limit that is ended by an extend to zero makes no dead letter.",
		Wrap: perQueue(func(q passing, delivered *deliveries) handle { return sparesGivenUp{remembering{q, delivered}} }),
	},
	{
		Name: "drops-what-should-die", Breaks: "DLQ-1",
		What: "A message that dies of a nack is removed, and no dead letter kept.",
		Wrap: perQueue(func(q passing, delivered *deliveries) handle { return dropsTheDying{remembering{q, delivered}} }),
	},

	{
		Name: "loses-the-last-error-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter does not tell the last error.",
		Wrap: perHandle(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.LastError = "" }}
		}),
	},
	{
		Name: "loses-the-error-type-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter does not tell the type of the error.",
		Wrap: perHandle(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.ErrorType = "" }}
		}),
	},
	{
		Name: "dates-first-delivery-by-death", Breaks: "DLQ-4",
		What: "A dead letter gives the time of its death for that of its first delivery.",
		Wrap: perHandle(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.FirstReceivedAt = letter.DeadAt }}
		}),
	},
	{
		Name: "dates-death-by-listing", Breaks: "DLQ-4", Also: []string{"DLQ-5"},
		What: "A dead letter died whenever it is looked at.",
		Wrap: perHandle(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.DeadAt = time.Now().UTC() }}
		}),
	},
	{
		Name: "loses-the-source", Breaks: "DLQ-4",
		What: "A dead letter does not say where it died.",
		Wrap: perHandle(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.Source = "" }}
		}),
	},
	{
		Name: "loses-attributes-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter has lost an attribute.",
		Wrap: perHandle(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) {
				letter.Attributes = maps.Clone(letter.Attributes)
				delete(letter.Attributes, "k")
			}}
		}),
	},
	{
		Name: "counts-no-deliveries-of-the-dead", Breaks: "DLQ-4",
		What: "A dead letter does not tell how often it was delivered.",
		Wrap: perHandle(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.Deliveries = 0 }}
		}),
	},
	{
		Name: "cuts-errors-inside-a-character", Breaks: "DLQ-4",
		What: "The error of a dead letter that is too long is cut by bytes, be it inside a character.",
		Wrap: perHandle(func(q passing) handle {
			return changesBurials{q, func(burial *driver.DeadLetterRequest) {
				burial.Error = burial.Error[:min(len(burial.Error), driver.MaxCauseBytes)]
			}}
		}),
	},
	{
		Name: "refuses-long-errors", Breaks: "DLQ-4",
		What: "Dead-lettering with an error that is too long is refused.",
		Wrap: perHandle(func(q passing) handle {
			return changesBurials{q, func(burial *driver.DeadLetterRequest) {
				if len(burial.Error) > driver.MaxCauseBytes {
					burial.Reason = ""
				}
			}}
		}),
	},
}

// changesBurials changes each burial on its way in.
type changesBurials struct {
	passing
	change func(*driver.DeadLetterRequest)
}

func (q changesBurials) DeadLetter(ctx context.Context, burials []driver.DeadLetterRequest) error {
	changed := append([]driver.DeadLetterRequest(nil), burials...)
	for i := range changed {
		q.change(&changed[i])
	}
	return q.Queue.DeadLetter(ctx, changed)
}

// changesDead changes dead letters on their way out.
type changesDead struct {
	passing
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

type shiftsBurialErrors struct{ passing }

func (q shiftsBurialErrors) DeadLetter(ctx context.Context, burials []driver.DeadLetterRequest) error {
	return shifted(q.Queue.DeadLetter(ctx, burials), len(burials))
}

type movesInSteps struct {
	passing
	moving *atomic.Int64
}

func (q movesInSteps) DeadLetter(ctx context.Context, burials []driver.DeadLetterRequest) error {
	q.moving.Add(1)
	runtime.Gosched() // so that others can look
	err := q.Queue.DeadLetter(ctx, burials)
	q.moving.Add(-1)
	return err
}

func (q movesInSteps) Stats(ctx context.Context) (driver.Stats, error) {
	stats, err := q.Queue.Stats(ctx)
	stats.InFlight = max(stats.InFlight-int(q.moving.Load()), 0)
	return stats, err
}

type sparesGivenUp struct{ remembering }

func (q sparesGivenUp) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
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

type dropsTheDying struct{ remembering }

func (q dropsTheDying) Nack(ctx context.Context, nacks []driver.Nack) error {
	return each(nacks, func(nack driver.Nack) error {
		d, ok := q.delivered.get(nack.Receipt)
		if limit := q.config().MaxDeliveries; ok && limit > 0 && d.Deliveries >= limit {
			return q.Queue.Ack(ctx, []driver.Receipt{nack.Receipt})
		}
		return q.Queue.Nack(ctx, []driver.Nack{nack})
	})
}
