package faulty

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var clockFaults = []Saboteur{
	{Name: "delays-follow-the-wall-clock", Breaks: "TIME-0",
		What: "A delayed message is ready when the wall clock says so.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			if msg.Delay > 0 && msg.Delay <= q.Traits().MaxDelay && msg.DeliverAt.IsZero() {
				msg.DeliverAt, msg.Delay = time.Now().Add(msg.Delay), 0
			}
		})}},
	{Name: "due-times-are-delays", Breaks: "TIME-0",
		What: "A due time is turned into a delay when the message is sent.",
		on: hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			if ahead := time.Until(msg.DeliverAt); msg.Delay == 0 && ahead > 0 && ahead <= q.Traits().MaxDelay {
				msg.DeliverAt, msg.Delay = time.Time{}, ahead
			}
		})}},
	{Name: "ignores-a-clock-that-is-set-back", Breaks: "TIME-0",
		What: "A message is ready at its due time although the wall clock was set back meanwhile.",
		on: atLook(func(q *queue, ctx context.Context) {
			q.reschedule(ctx, driver.StateDelayed, func(due time.Time) (driver.Edit, bool) {
				return driver.Edit{Ready: true}, !due.After(time.Now())
			})
		}, hooks{send: afterSend(noteDue)})},
	{Name: "delays-what-was-ready-when-the-clock-is-set-back", Breaks: "TIME-0",
		What: "A message that has become ready is delayed again when the wall clock is set back.",
		on: atLook(func(q *queue, ctx context.Context) {
			wall := q.wall(ctx)
			q.reschedule(ctx, driver.StateReady, func(due time.Time) (driver.Edit, bool) {
				return driver.Edit{DeliverAt: due}, due.After(wall)
			})
		}, hooks{send: afterSend(noteDue)})},
	{Name: "takes-due-times-that-were-passed-for-past", Breaks: "TIME-0",
		What: "A message is ready when it is sent, if the wall clock had passed its due time before it was set back.",
		on: atLook((*queue).noteWall, hooks{send: alterSent(func(q *queue, msg *driver.Outgoing) {
			set(!msg.DeliverAt.After(q.furthestWall()), &msg.DeliverAt, time.Time{})
		})})},
	{Name: "waits-through-a-step-of-the-clock", Breaks: "TIME-0",
		What: "A receive that waits notices after a while that the wall clock was set.",
		on:   hooks{receive: pollEvery(20*time.Second, nil)}},
	{Name: "new-due-times-are-delays", Breaks: "TIME-0",
		What: "A due time that a waiting message is given is counted as time that passes.",
		on: atLook((*queue).keepDue, hooks{edit: func(q *queue, ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
			was, err := q.Edit(ctx, id, edit)
			if err == nil && !edit.DeliverAt.IsZero() {
				state[dueTimes](q).put(id, edit.DeliverAt)
			}
			return was, err
		}})},
	{Name: "leases-follow-the-wall-clock", Breaks: "TIME-0",
		What: "Leases end when the wall clock is set forward.",
		on: atLook(func(q *queue, ctx context.Context) {
			if !q.wall(ctx).After(time.Now().Add(time.Second)) {
				return
			}
			for _, receipt := range q.delivered.keys() {
				q.delivered.drop(receipt)
				_, _ = q.extendOne(ctx, driver.Extension{Receipt: receipt}) // it may be settled
			}
		}, hooks{})},
	{Name: "retention-follows-the-wall-clock", Breaks: "TIME-0",
		What: "Messages are too old when the wall clock is set forward by the time that they are kept.",
		on: hooks{stats: alterCounts(func(q *queue, ctx context.Context, stats *driver.Stats) {
			if limit := q.config().RetainReady.Age; limit > 0 && q.wall(ctx).After(time.Now().Add(limit)) {
				stats.Dead, stats.Ready = stats.Dead+stats.Ready, 0
			}
		})}},
	{Name: "counts-the-age-from-a-step-of-the-clock", Breaks: "TIME-0",
		What: "The age of a message counts from when a step of the wall clock made it ready.",
		on: hooks{send: afterSend(noteDue), stats: alterCounts(func(q *queue, ctx context.Context, stats *driver.Stats) {
			for _, peeked := range q.peeked(ctx, driver.StateReady) {
				_, noted := state[dueTimes](q).get(peeked.ID)
				if limit := q.config().RetainReady.Age; noted && limit > 0 && time.Since(peeked.EnqueuedAt) > limit {
					stats.Ready, stats.Dead = stats.Ready-1, stats.Dead+1
				}
			}
		})}},
	{Name: "outlives-a-step-of-the-clock", Breaks: "TIME-0",
		What: "A message whose time to live is over because the wall clock was set forward lives on.",
		on: hooks{send: afterSend(noteLife), stats: alterCounts(func(q *queue, ctx context.Context, stats *driver.Stats) {
			letters, _ := collect(q.DeadLetters(ctx))
			for _, letter := range letters {
				if _, lives := state[dueTimes](q.wrapper).get(letter.ID); lives && !q.outlived(letter.ID) {
					stats.Ready, stats.Dead = stats.Ready+1, stats.Dead-1
				}
			}
		})}},
	{Name: "ends-lives-although-the-clock-is-set-back", Breaks: "TIME-0",
		What: "A message ends when its time to live has passed, although the wall clock was set back meanwhile.",
		on: hooks{send: afterSend(noteLife), stats: alterCounts(func(q *queue, ctx context.Context, stats *driver.Stats) {
			for _, peeked := range q.peeked(ctx, driver.StateReady) {
				if q.outlived(peeked.ID) {
					stats.Ready, stats.Dead = stats.Ready-1, stats.Dead+1
				}
			}
		})}},
	{Name: "leaves-firings-undone-after-a-step-of-the-clock", Breaks: "TIME-0",
		What: "A firing for a time that the wall clock was set past is left undone.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			if f.Through.After(time.Now()) {
				now := q.schedule(ctx, f.Name)
				return now, false, nil
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "fires-although-the-clock-is-set-back", Breaks: "TIME-0",
		What: "A firing is done for a time that the wall clock has shown before it was set back.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			q.noteWall(ctx)
			set(!f.Through.After(q.furthestWall()), &f.Through, time.Time{})
			return q.Fire(ctx, f)
		}}},
	{Name: "due-times-are-delays-after-a-restart", Breaks: "TIME-0",
		What:    "A restart turns due times into delays.",
		restart: (*queue).noteDelayed,
		after:   new(atLook((*queue).keepDue, hooks{}))},
	{Name: "delays-follow-the-wall-clock-after-a-restart", Breaks: "TIME-0",
		What:    "A restart turns delays into due times.",
		restart: (*queue).noteDelayed,
		after: new(atLook(func(q *queue, ctx context.Context) {
			wall := q.wall(ctx)
			q.reschedule(ctx, driver.StateDelayed, func(due time.Time) (driver.Edit, bool) {
				return driver.Edit{Ready: true}, !due.After(wall)
			})
		}, hooks{}))},
}

// dueTimes are due times by the clock of this process, by message id.
type dueTimes = table[string, time.Time]

// wall reads the wall clock of the backend, which may have read it a second ago.
func (q *queue) wall(ctx context.Context) time.Time {
	now, _, _ := q.Fire(ctx, driver.Firing{Name: "none", Revision: 1}) // no schedule has this revision
	return now.Now
}

// noteWall remembers the furthest that the wall clock of the backend has shown.
func (q *queue) noteWall(ctx context.Context) {
	if wall := q.wall(ctx); wall.After(q.furthestWall()) {
		state[dueTimes](q.wrapper).put("furthest", wall)
	}
}

func (q *queue) furthestWall() time.Time { return state[dueTimes](q.wrapper).at("furthest") }

// noteDue remembers the due time of a message.
func noteDue(q *queue, msg driver.Outgoing, sent *driver.Sent) {
	if !msg.DeliverAt.IsZero() && sent.ID != "" {
		state[dueTimes](q).put(sent.ID, msg.DeliverAt)
	}
}

// noteDelayed remembers when delayed messages are due.
func (q *queue) noteDelayed(ctx context.Context) error {
	for _, peeked := range q.peeked(ctx, driver.StateDelayed) {
		state[dueTimes](q).put(peeked.ID, peeked.DueAt)
	}
	return nil
}

// reschedule edits the messages in a state whose due time is known, if change says so.
func (q *queue) reschedule(ctx context.Context, in driver.State, change func(due time.Time) (driver.Edit, bool)) {
	for _, peeked := range q.peeked(ctx, in) {
		due, noted := state[dueTimes](q).get(peeked.ID)
		if edit, changes := change(due); noted && changes {
			_, _ = q.Edit(ctx, peeked.ID, edit) // another call may have taken the message
		}
	}
}

// keepDue lets messages wait until their due time by the clock of this process.
func (q *queue) keepDue(ctx context.Context) {
	wall := q.wall(ctx)
	keep := func(due time.Time) (driver.Edit, bool) {
		return driver.Edit{DeliverAt: wall.Add(time.Until(due))}, due.After(time.Now())
	}
	q.reschedule(ctx, driver.StateReady, keep)
	q.reschedule(ctx, driver.StateDelayed, keep)
}

// atLook adds to hooks what is done before each receive and each read of the counts.
func atLook(do func(*queue, context.Context), on hooks) hooks {
	on.receive = func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		do(q, ctx)
		return q.Receive(ctx, req)
	}
	on.stats = func(q *queue, ctx context.Context) (driver.Stats, error) {
		do(q, ctx)
		return q.Stats(ctx)
	}
	return on
}

// alterCounts changes the returned counts; change may ask the queue.
func alterCounts(change func(q *queue, ctx context.Context, stats *driver.Stats)) func(*queue, context.Context) (driver.Stats, error) {
	return func(q *queue, ctx context.Context) (driver.Stats, error) {
		stats, err := q.Stats(ctx)
		change(q, ctx, &stats)
		return stats, err
	}
}
