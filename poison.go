package mailbox

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Disposition says what happens to a delivery whose body cannot be decoded.
// The zero Disposition dead-letters it.
type Disposition struct {
	Action PoisonAction
	// Delay is the delay of PoisonNack and PoisonPutBack, cut to what the backend allows.
	Delay time.Duration
}

// A PoisonAction is a kind of Disposition.
type PoisonAction string

// The actions.
const (
	// PoisonDeadLetter dead-letters it with reason parse. If the backend keeps no dead
	// letters, or they are full, it is nacked with a delay of 15 minutes, or of
	// Traits.MaxVisibility if that is shorter.
	PoisonDeadLetter PoisonAction = ""
	// PoisonNack nacks it with Disposition.Delay, for a receiver that can decode
	// it.
	PoisonNack PoisonAction = "nack"
	// PoisonPutBack puts it back with Disposition.Delay: as PoisonNack, and the delivery
	// does not count; see Message.PutBack.
	PoisonPutBack PoisonAction = "put-back"
	// PoisonAck acks it, for a Poison function that has stored it elsewhere.
	PoisonAck PoisonAction = "ack"
)

// poisonDelay is the delay of an undecodable message that cannot be dead-lettered.
const poisonDelay = 15 * time.Minute

// String returns "dead-letter", "nack after 1m0s", "put-back after 1m0s" or "ack".
func (d Disposition) String() string {
	switch d.Action {
	case PoisonDeadLetter:
		return "dead-letter"
	case PoisonNack, PoisonPutBack:
		return string(d.Action) + " after " + d.Delay.String()
	}
	return string(d.Action)
}

// poisonedDelivery is a delivery that could not be decoded, and the reason.
type poisonedDelivery struct {
	delivery    *driver.Delivery
	cause       error // of the codec
	err         error // cause as an *Error
	disposition Disposition
	failure     error // why it could not be disposed of
}

// poisonFound says whether a receive found undecodable messages.
type poisonFound struct {
	found bool
	// returns: some of them may be delivered again at once, so receiving again without
	// a pause would be a busy loop.
	returns bool
}

// dispose decides the disposition of each undecodable delivery and carries it out, with
// one call of the backend for each kind.
func (m *Mailbox[T]) dispose(ctx context.Context, poisoned []poisonedDelivery) poisonFound {
	traits := m.Queue().Traits()
	for i := range poisoned {
		p := &poisoned[i]
		p.err = m.encodingError(opReceive, p.delivery.ID, p.cause)
		p.disposition = m.dispositionOf(ctx, p).within(&traits)
	}
	m.carryOut(ctx, poisoned, PoisonDeadLetter)
	for i := range poisoned {
		// While the dead letters are full, the message is still in flight.
		if p := &poisoned[i]; p.disposition.Action == PoisonDeadLetter && errors.Is(p.failure, ErrFull) {
			p.disposition, p.failure = longestNack(&traits), nil
		}
	}
	m.carryOut(ctx, poisoned, PoisonNack)
	m.carryOut(ctx, poisoned, PoisonPutBack)
	m.carryOut(ctx, poisoned, PoisonAck)

	result := poisonFound{found: true}
	for i := range poisoned {
		p := &poisoned[i]
		m.report(ctx, p)
		returns := p.disposition.Action == PoisonNack || p.disposition.Action == PoisonPutBack
		if p.failure != nil || returns && p.disposition.Delay < idlePauseMax {
			result.returns = true
		}
	}
	return result
}

// dispositionOf calls Options.Poison. If that panics, the message is dead-lettered.
func (m *Mailbox[T]) dispositionOf(ctx context.Context, p *poisonedDelivery) (chosen Disposition) {
	if m.poison == nil {
		return Disposition{}
	}
	defer func() {
		if value := recover(); value != nil {
			m.logger.LogAttrs(ctx, slog.LevelError, "mailbox: Options.Poison panicked", slog.String("queue", m.name),
				slog.String("id", p.delivery.ID), slog.Any("panic", value), slog.String("stack", string(debug.Stack())))
		}
	}()
	return m.poison(ctx, *p.delivery, p.err)
}

// within turns a disposition into one that the queue can carry out.
func (d Disposition) within(traits *driver.Traits) Disposition {
	switch d.Action {
	case PoisonAck:
		return Disposition{Action: PoisonAck}
	case PoisonNack, PoisonPutBack:
		return Disposition{Action: d.Action, Delay: max(0, min(d.Delay, traits.MaxVisibility))}
	}
	if !traits.DeadLetters {
		return longestNack(traits)
	}
	return Disposition{}
}

func longestNack(traits *driver.Traits) Disposition {
	return Disposition{Action: PoisonNack, Delay: min(poisonDelay, traits.MaxVisibility)}
}

// carryOut makes one call of the backend for the deliveries whose disposition is kind,
// and records the error of each. They were received in one batch, so they fit into one.
func (m *Mailbox[T]) carryOut(ctx context.Context, poisoned []poisonedDelivery, kind PoisonAction) {
	batch := actionBatches.get()
	defer batch.free()
	var positions []int
	var last action
	for i := range poisoned {
		p := &poisoned[i]
		if p.disposition.Action != kind {
			continue
		}
		switch kind {
		case PoisonDeadLetter:
			last = action{kind: OutcomeDeadLetter, reason: driver.ReasonParse, cause: p.cause}
		case PoisonNack:
			last = action{kind: OutcomeNack, duration: p.disposition.Delay, cause: p.cause}
		case PoisonPutBack:
			last = action{kind: OutcomePutBack, duration: p.disposition.Delay, cause: p.cause}.on(m.Queue())
		case PoisonAck:
			last = action{kind: OutcomeAck}
		}
		batch.add(p.delivery.Receipt, last, nil)
		positions = append(positions, i)
	}
	if len(positions) == 0 {
		return
	}
	_, err := batch.send(ctx, m.Queue(), last)
	for j, i := range positions {
		poisoned[i].failure = ErrorAt(err, j)
	}
}

// report logs an undecodable delivery and calls the hook. It leaves out the body, which
// may contain secrets.
func (m *Mailbox[T]) report(ctx context.Context, p *poisonedDelivery) {
	level, text := slog.LevelWarn, "mailbox: body cannot be decoded"
	if p.failure != nil {
		level, text = slog.LevelError, "mailbox: body cannot be decoded, and the message could not be disposed of"
	}
	if m.logger.Enabled(ctx, level) {
		attrs := []slog.Attr{
			slog.String("queue", m.name),
			slog.String("id", p.delivery.ID),
			slog.Int("deliveries", p.delivery.Deliveries),
			slog.Int("body_bytes", len(p.delivery.Body)),
			slog.String("disposition", p.disposition.String()),
			slog.Any("err", p.err),
		}
		if p.failure != nil {
			attrs = append(attrs, slog.Any("failure", p.failure))
		}
		if panicked, ok := errors.AsType[*panicError](p.cause); ok {
			attrs = append(attrs, slog.String("stack", string(panicked.stack)))
		}
		m.logger.LogAttrs(ctx, level, text, attrs...)
	}
	if m.hooks.Poisoned != nil {
		m.hooks.Poisoned(ctx, PoisonedEvent{
			Queue: m.name, Delivery: p.delivery,
			Cause: p.err, Disposition: p.disposition, Err: p.failure,
		})
	}
}
