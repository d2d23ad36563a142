package faulty

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var ttlFaults = []Saboteur{
	{Name: "forgets-the-time-to-live", Breaks: "TIME-2",
		What: "A message that is sent with a time to live does not end.",
		on:   alterLife(func(_ *queue, msg *driver.Outgoing) { msg.TTL = 0 })},
	{Name: "lives-too-long", Breaks: "TIME-2",
		What: "A message ends a tenth of a second after its time to live.",
		on:   alterLife(func(_ *queue, msg *driver.Outgoing) { msg.TTL = min(msg.TTL+100*time.Millisecond, driver.MaxTTL) })},
	{Name: "ends-early", Breaks: "TIME-2",
		What: "A message ends a millisecond before its time to live.",
		on: alterLife(func(_ *queue, msg *driver.Outgoing) {
			set(msg.TTL > time.Millisecond, &msg.TTL, msg.TTL-time.Millisecond)
		})},
	{Name: "counts-life-from-the-send", Breaks: "TIME-2",
		What: "The time to live of a delayed message begins when it is sent.",
		on: alterLife(func(_ *queue, msg *driver.Outgoing) {
			set(msg.Delay > 0, &msg.TTL, max(msg.TTL-msg.Delay, 1))
			ahead := time.Until(msg.DeliverAt)
			set(!msg.DeliverAt.IsZero() && ahead > 0, &msg.TTL, max(msg.TTL-ahead, 1))
		})},
	{Name: "counts-life-from-a-past-due-time", Breaks: "TIME-2",
		What: "A message that was due before it is sent has lived since then.",
		on: alterLife(func(_ *queue, msg *driver.Outgoing) {
			past := time.Since(msg.DeliverAt)
			set(!msg.DeliverAt.IsZero() && past > 0, &msg.TTL, max(msg.TTL-past, 1))
		})},
	{Name: "clamps-times-to-live", Breaks: "TIME-2",
		What: "A time to live outside its limits is clamped instead of refused.",
		on: hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) {
			msg.TTL = min(max(msg.TTL, 0), driver.MaxTTL)
		})}},
	{Name: "ignores-the-time-to-live-of-the-queue", Breaks: "TIME-2",
		What: "Messages that are sent without a time to live do not end, although the queue has one.",
		on:   hooks{config: func(c *driver.Config) { c.TTL = 0 }}},
	{Name: "prefers-the-time-to-live-of-the-queue", Breaks: "TIME-2",
		What: "In a queue that has a time to live, that of a message is ignored.",
		on: alterLife(func(q *queue, msg *driver.Outgoing) {
			set(q.config().TTL > 0, &msg.TTL, 0)
		})},
	{Name: "ends-nothing-without-a-trace", Breaks: "TIME-2",
		What: "A message whose time to live is over leaves no dead letter.",
		on:   discardDead(driver.ReasonExpired, noRetention)},
	{Name: "calls-the-outlived-worn-out", Breaks: "TIME-2",
		What: "A message whose time to live is over has the reason max deliveries.",
		on: hooks{deadLetters: alterDead(func(q *queue, letter *driver.DeadLetter) {
			set(letter.Reason == driver.ReasonExpired && noRetention(q.config()), &letter.Reason, driver.ReasonMaxDeliveries)
		})}},
	{Name: "keeps-the-outlived-of-a-queue-that-drops", Breaks: "TIME-2",
		What: "A queue that drops expired messages keeps those whose time to live is over as dead letters.",
		on:   hooks{config: func(c *driver.Config) { c.DropExpired = c.DropExpired && c.TTL == 0 }}},
	{Name: "takes-the-outlived-from-their-holders", Breaks: "TIME-2",
		What: "A message whose time to live is over dies in flight, when its lease is extended.",
		on: hooks{send: afterSend(noteLife), extend: func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
			for _, extension := range extensions {
				d, ok := q.delivered.get(extension.Receipt)
				if ok && q.outlived(d.ID) && extension.Visibility > 0 {
					_ = q.deadLetterOne(ctx, driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonExpired}) // it may be settled
				}
			}
			return q.Extend(ctx, extensions)
		}}},
	{Name: "revives-by-a-nack", Breaks: "TIME-2",
		What: "A message that is nacked lives again as long as when it was sent.",
		on: hooks{receive: countOn, send: afterSend(noteLife), nack: oneByOne(func(q *queue, ctx context.Context, nack driver.Nack) error {
			d, _ := q.delivered.get(nack.Receipt)
			if _, lives := state[table[string, time.Time]](q.wrapper).get(d.ID); !lives || nack.Delay != 0 || nack.Mode != driver.NackFailed {
				return q.nackOne(ctx, nack)
			}
			return q.deadLetterAndRedrive(ctx, nack)
		})}},
	{Name: "redrives-the-outlived-to-die", Breaks: "TIME-2",
		What: "A redriven message whose time to live was over dies again at once.",
		on: hooks{send: afterSend(noteLife), redrive: func(q *queue, ctx context.Context, ids []string, limit int) (int, error) {
			letters, err := collect(q.DeadLetters(ctx))
			if err != nil {
				return 0, err
			}
			alive, over := []string{}, 0
			for _, letter := range letters {
				switch {
				case wanted(ids, letter) && q.outlived(letter.ID):
					over++
				case wanted(ids, letter):
					alive = append(alive, letter.ID)
				}
			}
			moved, err := q.Redrive(ctx, alive, limit)
			return moved + over, err
		}}},
	{Name: "lets-the-outlived-block-their-group", Breaks: "TIME-2",
		What: "A message whose time to live is over still blocks its strict group.",
		on: hooks{only: strict, receive: afterReceive(func(q *queue, ctx context.Context, got []driver.Delivery) []driver.Delivery {
			letters, _ := collect(q.DeadLetters(ctx))
			return slices.DeleteFunc(got, func(d driver.Delivery) bool {
				blocked := slices.ContainsFunc(letters, func(letter driver.DeadLetter) bool {
					return letter.Reason == driver.ReasonExpired && noRetention(q.config()) && letter.Group == d.Group
				})
				if blocked {
					_ = q.nackOne(ctx, driver.Nack{Receipt: d.Receipt, Delay: time.Second, Mode: driver.NackRelease})
				}
				return blocked
			})
		})}},
	{Name: "rescheduled-messages-keep-their-end", Breaks: "TIME-2",
		What: "A message that gets another due time ends when it would have ended without.",
		on: hooks{send: afterSend(noteLife), edit: noteEdited, stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
			stats, err := q.Stats(ctx)
			for _, id := range state[marks](q).keys() {
				switch was := q.stateOf(ctx, id); {
				case !q.outlived(id):
				case was == driver.StateReady:
					stats.Ready--
					stats.Dead++
				case was == driver.StateDelayed:
					stats.Delayed--
					stats.Dead++
				}
			}
			return stats, err
		}}},
	{Name: "rescheduled-messages-do-not-end", Breaks: "TIME-2",
		What: "A message that got another due time has no time to live any more.",
		on: hooks{edit: noteEdited, stats: func(q *queue, ctx context.Context) (driver.Stats, error) {
			stats, err := q.Stats(ctx)
			letters, _ := collect(q.DeadLetters(ctx))
			for _, letter := range letters {
				if state[marks](q).at(letter.ID) && letter.Reason == driver.ReasonExpired && noRetention(q.config()) {
					stats.Dead--
					stats.Ready++
				}
			}
			return stats, err
		}}},
	{Name: "revives-what-was-ready", Breaks: "TIME-2",
		What: "Making a ready message ready gives it its whole time to live again.",
		on: hooks{send: afterSend(noteLife), edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			_, lives := state[table[string, time.Time]](q.wrapper).get(id)
			if lives && edit == (driver.Edit{Ready: true}) && q.stateOf(ctx, id) == driver.StateReady {
				edit = driver.Edit{DeliverAt: time.Now().Add(time.Millisecond)}
			}
			return q.Edit(ctx, id, edit)
		}}},
	{Name: "messages-of-schedules-do-not-end", Breaks: "TIME-2",
		What: "A message of a schedule has no time to live, although its queue has one.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			f.Messages = slices.Clone(f.Messages)
			for i := range f.Messages {
				set(f.Messages[i].TTL == 0 && q.config().TTL > 0, &f.Messages[i].TTL, driver.MaxTTL)
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "denies-times-to-live", Breaks: "TIME-2",
		What: "A queue whose messages can have a time to live says that they cannot.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.TTL = false })}},
	{Name: "forgets-times-to-live-on-restart", Breaks: "TIME-2",
		What: "After a restart messages do not end.",
		restart: func(q *queue, ctx context.Context) error {
			return q.refill(ctx, nil, driver.StateReady, driver.StateDelayed)
		}},
}

// noRetention reports whether messages expire by their time to live alone.
func noRetention(config driver.Config) bool {
	return config.RetainReady == driver.Retention{}
}

// alterLife changes messages with a valid time to live before they are sent.
func alterLife(change func(*queue, *driver.Outgoing)) hooks {
	return hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
		if msg.TTL > 0 && msg.TTL <= driver.MaxTTL {
			change(q, msg)
		}
	})}
}

// noteLife remembers when the time to live of a message is over.
func noteLife(q *queue, msg driver.Outgoing, sent *driver.Sent) {
	if msg.TTL > 0 && sent.ID != "" {
		state[table[string, time.Time]](q.wrapper).put(sent.ID, time.Now().Add(msg.Delay+msg.TTL))
	}
}

// outlived reports whether the time to live of a message is over.
func (q *queue) outlived(id string) bool {
	ends, ok := state[table[string, time.Time]](q.wrapper).get(id)
	return ok && !time.Now().Before(ends)
}
