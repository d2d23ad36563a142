package faulty

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var scheduleFaults = []Saboteur{
	{Name: "hides-queues-with-schedules", Breaks: "TIME-1",
		What: "The first queue with schedules is not listed.",
		on: hooks{scheduled: func(b *wrapper, ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
			return func(yield func(driver.ScheduledQueue, error) bool) {
				first := true
				for q, err := range b.ScheduledQueues(ctx) {
					if first && err == nil {
						first = false
						continue
					}
					if !yield(q, err) {
						return
					}
				}
			}
		}}},
	{Name: "lists-queues-without-schedules", Breaks: "TIME-1",
		What: "Queues without schedules are listed as if they had one.",
		on: hooks{scheduled: func(b *wrapper, ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
			return func(yield func(driver.ScheduledQueue, error) bool) {
				have := make(map[string]int)
				for q, err := range b.ScheduledQueues(ctx) {
					if err == nil {
						have[q.Name] = q.Schedules
					}
				}
				for name, err := range b.Queues(ctx) {
					if !yield(driver.ScheduledQueue{Name: name, Schedules: max(1, have[name])}, err) {
						return
					}
				}
			}
		}}},
	{Name: "counts-schedules-once-a-queue", Breaks: "TIME-1",
		What: "A queue with many schedules is listed as if it had one.",
		on: hooks{scheduled: func(b *wrapper, ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
			return func(yield func(driver.ScheduledQueue, error) bool) {
				for q, err := range b.ScheduledQueues(ctx) {
					q.Schedules = min(q.Schedules, 1)
					if !yield(q, err) {
						return
					}
				}
			}
		}}},
	{Name: "fires-twice", Breaks: "TIME-1",
		What: "The messages of a firing are sent twice.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			now, done, err := q.Fire(ctx, f)
			if done {
				_, err = q.Send(ctx, messagesOf(f))
			}
			return now, done, err
		}}},
	{Name: "moves-schedules-without-messages", Breaks: "TIME-1",
		What: "Of two messages or more, a firing changes the schedule and sends all but the last.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			if len(f.Messages) > 1 {
				f.Messages = f.Messages[:len(f.Messages)-1]
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "sends-without-moving-schedules", Breaks: "TIME-1",
		What: "A firing sends its messages and leaves the schedule as it was.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			s := q.schedule(ctx, f.Name)
			if len(f.Messages) == 0 || s.Revision != f.Revision || s.Revision == 0 || f.Through.After(s.Now) {
				return q.Fire(ctx, f)
			}
			_, err := q.Send(ctx, messagesOf(f))
			return s, err == nil, err
		}}},
	{Name: "ignores-revisions", Breaks: "TIME-1",
		What: "A firing is done whatever revision the schedule has.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			if s := q.schedule(ctx, f.Name); s.Revision != 0 && f.Revision != 0 {
				f.Revision = s.Revision
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "makes-schedules-over-others", Breaks: "TIME-1",
		What: "A new schedule replaces one of the same name.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			if s := q.schedule(ctx, f.Name); f.Revision == 0 {
				f.Revision = s.Revision
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "compares-revisions-before-it-fires", Breaks: "TIME-1",
		What: "Comparing and firing are two steps, so that two firings at once are both done.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			s := q.schedule(ctx, f.Name)
			if f.Revision == 0 || s.Revision != f.Revision {
				return q.Fire(ctx, f)
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
			for {
				now, done, err := q.Fire(ctx, f)
				if done || err != nil || now.Revision == 0 || f.Through.After(now.Now) {
					return now, done, err
				}
				f.Revision = now.Revision
			}
		}}},
	{Name: "judges-by-the-callers-clock", Breaks: "TIME-1",
		What: "A firing is done although its time has not come by the clock of the backend.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			if now := q.now(ctx, f.Name); f.Through.After(now) {
				f.Through = now
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "sends-what-fits-of-a-firing", Breaks: "TIME-1",
		What: "If not all messages of a firing fit, those that do are sent.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			now, done, err := q.Fire(ctx, f)
			if err != nil && len(f.Messages) > 1 {
				_, _ = q.Send(ctx, messagesOf(f))
			}
			return now, done, err
		}}},
	{Name: "forgets-runs", Breaks: "TIME-1",
		What: "The runs before the latest firing are not kept.",
		on: alterSchedules(func(_ *queue, s *driver.Schedule) {
			s.Runs = s.Runs[max(0, len(s.Runs)-1):]
		})},
	{Name: "keeps-the-first-runs", Breaks: "TIME-1",
		What: "A schedule keeps its first runs and not its latest.",
		on: alterSchedules(func(q *queue, s *driver.Schedule) {
			all := state[table[string, []driver.Run]](q)
			first := slices.Clone(all.at(s.Name)) // firings run side by side
			for _, run := range s.Runs {
				if len(first) < driver.MaxRuns && !slices.Contains(first, run) {
					first = append(first, run)
				}
			}
			all.put(s.Name, first)
			s.Runs = slices.Clone(first)
		})},
	{Name: "gives-out-revisions-again", Breaks: "TIME-1",
		What: "A schedule that is removed and made again has its old revision.",
		on: hooks{
			fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
				hidden, s := state[marks](q), q.schedule(ctx, f.Name)
				switch {
				case f.Remove && s.Revision == f.Revision:
					hidden.put(f.Name, true)
					return driver.Schedule{Name: f.Name, Now: s.Now}, true, nil
				case f.Revision == 0 && hidden.at(f.Name):
					hidden.drop(f.Name)
					return s, true, nil
				}
				return q.Fire(ctx, f)
			},
			schedules: func(q *queue, ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
				return filter(q.Schedules(ctx, name), func(s *driver.Schedule) bool { return !state[marks](q).at(s.Name) })
			},
		}},
	{Name: "forgets-definitions", Breaks: "TIME-1",
		What: "A firing without a definition removes the definition.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			if f.Definition == nil && !f.Remove {
				f.Definition = []byte{}
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "cuts-definitions", Breaks: "TIME-1",
		What: "A definition ends at its first zero byte.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			if i := slices.Index(f.Definition, 0); i >= 0 {
				f.Definition = f.Definition[:i]
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "does-not-say-its-time", Breaks: "TIME-1",
		What: "Answers do not have the time of the backend.",
		on:   alterSchedules(func(_ *queue, s *driver.Schedule) { s.Now = time.Time{} })},
	{Name: "goes-back-in-time", Breaks: "TIME-1",
		What: "The time through which a schedule is dealt with is that of the last firing, even if it is earlier.",
		on: func() hooks {
			on := alterSchedules(func(q *queue, s *driver.Schedule) {
				state[table[string, time.Time]](q).load(s.Name, &s.Through)
			})
			fire := on.fire
			on.fire = func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
				state[table[string, time.Time]](q).drop(f.Name)
				now, done, err := fire(q, ctx, f)
				if done && f.Through.Before(now.Through) && !f.Through.IsZero() {
					state[table[string, time.Time]](q).put(f.Name, f.Through)
					now.Through = f.Through
				}
				return now, done, err
			}
			return on
		}()},
	{Name: "lists-schedules-backwards", Breaks: "TIME-1",
		What: "Schedules are listed in the reverse order of their names.",
		on: hooks{schedules: func(q *queue, ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
			return func(yield func(driver.Schedule, error) bool) {
				var all []driver.Schedule
				for s, err := range q.Schedules(ctx, name) {
					if err != nil {
						yield(s, err)
						return
					}
					all = append(all, s)
				}
				for _, s := range slices.Backward(all) {
					if !yield(s, nil) {
						return
					}
				}
			}
		}}},
	{Name: "finds-schedules-by-prefix", Breaks: "TIME-1",
		What: "A search for one schedule finds all.",
		on: hooks{schedules: func(q *queue, ctx context.Context, _ string) iter.Seq2[driver.Schedule, error] {
			return q.Schedules(ctx, "")
		}}},
	{Name: "takes-any-firing", Breaks: "TIME-1",
		What: "Messages of a firing may have a delay, which is ignored.",
		on: hooks{fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			f.Messages = slices.Clone(f.Messages)
			for i := range f.Messages {
				f.Messages[i].Delay = 0
			}
			return q.Fire(ctx, f)
		}}},
	{Name: "purges-schedules", Breaks: "TIME-1",
		What: "Purging a queue removes its schedules.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			q.removeSchedules(ctx)
			return q.Purge(ctx)
		}}},
	{Name: "keeps-schedules-of-deleted-queues", Breaks: "TIME-1",
		What: "A queue that is made again has the schedules that it had before.",
		on: hooks{deleteQueue: func(b *wrapper, ctx context.Context, name string) error {
			q, err := b.inner.OpenQueue(ctx, name)
			if err != nil {
				return b.DeleteQueue(ctx, name)
			}
			var kept []driver.Schedule
			for s, err := range q.Schedules(ctx, "") {
				if err == nil {
					kept = append(kept, s)
				}
			}
			_ = q.Close()
			if err := b.DeleteQueue(ctx, name); err != nil || len(kept) == 0 {
				return err
			}
			if q, err = b.inner.OpenQueue(ctx, name); err != nil {
				return err
			}
			for _, s := range kept {
				_, _, _ = q.Fire(ctx, driver.Firing{Name: s.Name, Definition: s.Definition})
			}
			return q.Close()
		}}},
	{Name: "firing-wakes-none", Breaks: "TIME-1",
		What: "A receive that waits notices messages of a schedule after a while.",
		on: hooks{receive: pollEvery(1300*time.Millisecond, func(q *queue, ctx context.Context, _ driver.ReceiveRequest) bool {
			for range q.Schedules(ctx, "") {
				return q.Traits().Schedules
			}
			return false
		})}},
	{Name: "forgets-schedules-on-restart", Breaks: "TIME-1",
		What: "After a restart a queue has no schedules.",
		restart: func(q *queue, ctx context.Context) error {
			q.removeSchedules(ctx)
			return nil
		}},
	{Name: "fires-again-on-restart", Breaks: "TIME-1",
		What: "After a restart the latest messages of a schedule are sent again.",
		restart: func(q *queue, ctx context.Context) error {
			for s, err := range q.Schedules(ctx, "") {
				if err != nil {
					return nil //nolint:nilerr // it has none
				}
				if len(s.Runs) > 0 {
					_, err := q.Send(ctx, []driver.Outgoing{{Body: []byte("a")}})
					return err
				}
			}
			return nil
		}},
}

func messagesOf(f driver.Firing) (messages []driver.Outgoing) {
	for _, m := range f.Messages {
		messages = append(messages, m.Outgoing)
	}
	return messages
}

// schedule returns a schedule, without a revision if there is none.
func (q *queue) schedule(ctx context.Context, name string) driver.Schedule {
	for s, err := range q.Schedules(ctx, name) {
		if err == nil && name != "" {
			return s
		}
	}
	return driver.Schedule{Name: name}
}

// now returns the time of the backend, if the schedule exists.
func (q *queue) now(ctx context.Context, name string) time.Time { return q.schedule(ctx, name).Now }

func (q *queue) removeSchedules(ctx context.Context) {
	for s, err := range q.Schedules(ctx, "") {
		if err == nil {
			_, _, _ = q.Fire(ctx, driver.Firing{Name: s.Name, Revision: s.Revision, Remove: true})
		}
	}
}

// alterSchedules changes the answers of both calls.
func alterSchedules(alter func(*queue, *driver.Schedule)) hooks {
	return hooks{
		fire: func(q *queue, ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
			now, done, err := q.Fire(ctx, f)
			if err == nil && now.Revision != 0 {
				alter(q, &now)
			}
			return now, done, err
		},
		schedules: func(q *queue, ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
			return func(yield func(driver.Schedule, error) bool) {
				for s, err := range q.Schedules(ctx, name) {
					if err == nil {
						alter(q, &s)
					}
					if !yield(s, err) {
						return
					}
				}
			}
		},
	}
}
