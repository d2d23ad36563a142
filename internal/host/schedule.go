package host

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// schedules are those of a queue. A firing locks them until its messages are in their shard,
// so that firings happen one after the other.
type schedules struct {
	mu     sync.Mutex                  // guards the field below; taken before a shard's
	byName map[string]*driver.Schedule // nil until the first; a schedule is not changed but replaced
}

func (h *handle) Fire(ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
	const op = "fire"
	if err := h.check(ctx, op); err != nil {
		return driver.Schedule{}, false, err
	}
	err := f.Check(h.settings.Load().traits)
	if err == nil && h.journal != nil && (f.Definition != nil || len(f.Messages) > 0) {
		err = h.journal.Admit()
	}
	if err != nil {
		return driver.Schedule{}, false, h.named(err, op)
	}
	r := run{queue: h.queue}
	now, done, err := r.fire(&f)
	// An answer that depends on another firing is not given before that is durable.
	if failure := r.finish(true); failure != nil {
		return driver.Schedule{}, false, h.named(failure, op)
	}
	if h.journal == nil { // otherwise publishing serves receives
		h.serve(nil)
	}
	return now, done, h.named(err, op)
}

// fire stages a valid firing, and returns the schedule after it.
func (r *run) fire(f *driver.Firing) (now driver.Schedule, done bool, err error) {
	table := &r.queue.schedules
	table.mu.Lock()
	defer table.mu.Unlock()
	r.use(r.queue.scheduleShard(f.Name))
	wall := wallTime(r.now.Wall)
	known := table.byName[f.Name]
	if known == nil {
		known = &driver.Schedule{Name: f.Name}
	}
	if known.Revision != f.Revision || f.Through.After(wall) {
		return shown(known, wall), false, nil
	}
	if known.Revision == 0 && len(table.byName) >= driver.MaxSchedules {
		return driver.Schedule{}, false, r.queue.full(fmt.Sprintf("queue has %d schedules, which is the limit", driver.MaxSchedules), 0)
	}
	staged, err := r.stageAll(f.Messages)
	if err != nil {
		return driver.Schedule{}, false, err
	}
	next := following(known, f, staged, wall)
	r.keep(f, next, staged)
	return shown(next, wall), true, nil
}

// stageAll stages the messages of a firing, or none if not all fit.
func (r *run) stageAll(msgs []driver.DueMessage) (staged []*engine.Entry, err error) {
	size := 0
	for i := range msgs {
		size += len(msgs[i].Body)
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	r.shard.engine.Advance(r.now)
	if !r.shard.engine.FitAll(len(msgs), size) {
		return nil, r.queue.noRoomLocked(r.shard, len(msgs))
	}
	ttl := r.queue.settings.Load().config.TTL
	for i := range msgs {
		packed := packMessage(&msgs[i].Outgoing, cmp.Or(msgs[i].TTL, ttl))
		if r.queue.backend.options.Wipe {
			packed.wipe()
		}
		staged = append(staged, r.shard.stageRoomyLocked(r.now, packed))
	}
	return staged, nil
}

// keep records a firing in one step, publishes its messages when they are durable, and replaces
// the schedule.
func (r *run) keep(f *driver.Firing, next *driver.Schedule, staged []*engine.Entry) {
	q := r.queue
	if f.Remove {
		delete(q.schedules.byName, f.Name)
	} else {
		if q.schedules.byName == nil {
			q.schedules.byName = make(map[string]*driver.Schedule)
		}
		q.schedules.byName[f.Name] = next
	}
	if q.journal == nil {
		for _, e := range staged {
			r.shard.engine.PublishNow(r.now, e)
		}
		return
	}
	q.journal.Lock()
	for _, e := range staged {
		q.journal.Sent(r.shard.id, e)
	}
	q.journal.Scheduled(q.id, next)
	q.journal.Unlock()
	for _, e := range staged {
		r.hold(e)
	}
}

// following returns the schedule after a firing. That of a removed one has no revision.
func following(known *driver.Schedule, f *driver.Firing, staged []*engine.Entry, wall time.Time) *driver.Schedule {
	if f.Remove {
		return &driver.Schedule{Name: f.Name}
	}
	next := *known
	next.Revision = rand.Uint64N(1<<53-1) + 1
	if f.Definition != nil {
		next.Definition = bytes.Clone(f.Definition)
	}
	if f.Through.After(known.Through) {
		next.Through = f.Through.UTC()
	}
	if len(staged) > 0 {
		next.Runs = slices.Clone(known.Runs)
		for i, e := range staged {
			run := driver.Run{At: wall.Truncate(time.Millisecond), MessageID: string([]byte(e.ID))}
			if due := f.Messages[i].Due; !due.IsZero() {
				run.Due = due.UTC()
			}
			next.Runs = append(next.Runs, run)
		}
		next.Runs = slices.Clone(next.Runs[max(0, len(next.Runs)-driver.MaxRuns):])
	}
	return &next
}

// shown returns a copy of a schedule for a caller, who may change it.
func shown(s *driver.Schedule, wall time.Time) driver.Schedule {
	answer := *s
	answer.Definition, answer.Runs, answer.Now = bytes.Clone(s.Definition), slices.Clone(s.Runs), wall.Truncate(time.Millisecond)
	return answer
}

// scheduleShard returns the shard that the messages of a schedule go to.
func (q *queue) scheduleShard(name string) *shard {
	if q.takesTurns("") {
		return q.groupShard(name)
	}
	return q.groupShard("")
}

func (h *handle) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	const op = "list schedules"
	return func(yield func(driver.Schedule, error) bool) {
		if err := h.check(ctx, op); err != nil {
			yield(driver.Schedule{}, err)
			return
		}
		found := h.schedules.list(name)
		if err := h.backend.barrier(); err != nil && len(found) > 0 {
			yield(driver.Schedule{}, h.named(err, op))
			return
		}
		for _, s := range found {
			if err := h.check(ctx, op); err != nil {
				yield(driver.Schedule{}, err)
				return
			}
			if !yield(shown(s, wallTime(h.now().Wall)), nil) {
				return
			}
		}
	}
}

// list returns the schedule of this name, or all if it is empty, by name.
func (t *schedules) list(name string) (found []*driver.Schedule) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name != "" {
		if s := t.byName[name]; s != nil {
			found = append(found, s)
		}
		return found
	}
	return slices.SortedFunc(maps.Values(t.byName), func(a, b *driver.Schedule) int { return cmp.Compare(a.Name, b.Name) })
}

// ScheduledQueues lists the queues that have schedules, in the order of their names.
func (b *Backend) ScheduledQueues(ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
	return func(yield func(driver.ScheduledQueue, error) bool) {
		b.mu.Lock()
		closed, queues := b.closed, slices.Collect(maps.Values(b.queues))
		b.mu.Unlock()
		if closed {
			yield(driver.ScheduledQueue{}, &driver.Error{Code: driver.ErrClosed, Op: "list schedules"})
			return
		}
		var found []driver.ScheduledQueue
		for _, q := range queues {
			if n := q.schedules.count(); n > 0 {
				found = append(found, driver.ScheduledQueue{Name: q.name, Schedules: n})
			}
		}
		slices.SortFunc(found, func(a, b driver.ScheduledQueue) int { return cmp.Compare(a.Name, b.Name) })
		for _, q := range found {
			if err := ctx.Err(); err != nil {
				yield(driver.ScheduledQueue{}, err)
				return
			}
			if !yield(q, nil) {
				return
			}
		}
	}
}

func (t *schedules) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byName)
}
