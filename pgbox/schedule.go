package pgbox

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// Fire changes a schedule and sends its messages; see driver.Queue. It blocks for a round trip.
func (h *handle) Fire(ctx context.Context, f driver.Firing) (driver.Schedule, bool, error) {
	const op = "fire"
	if err := h.check(ctx, op); err != nil {
		return driver.Schedule{}, false, err
	}
	traits := h.Traits()
	if err := f.Check(&traits); err != nil {
		return driver.Schedule{}, false, h.named(err, op)
	}
	code, now, err := h.fire(ctx, &f)
	full := func(detail string, wait time.Duration) error {
		return h.named(&driver.Error{Code: driver.ErrFull, Detail: detail, RetryAfter: wait}, op)
	}
	switch {
	case err != nil:
		return driver.Schedule{}, false, h.outcome(err, op)
	case code == "f":
		return driver.Schedule{}, false, full("the queue is full", retryAfter)
	case code == "m":
		return driver.Schedule{}, false, full(fmt.Sprintf("queue has %d schedules, which is the limit", driver.MaxSchedules), 0)
	}
	return now, code == "1", nil
}

// fire calls the function fire, and returns its code and the schedule as it is now.
func (h *handle) fire(ctx context.Context, f *driver.Firing) (string, driver.Schedule, error) {
	var op sendOp
	dues := make([]int64, len(f.Messages))
	for i, id := range h.backend.newIDs(len(f.Messages)) {
		op.rows = append(op.rows, h.sendRow(&f.Messages[i].Outgoing, id, false))
		dues[i] = millis(f.Messages[i].Due)
	}
	c := columnsOf([]*sendOp{&op})
	if c.ids == nil { // not null
		c.ids = [][16]byte{}
	}
	following := rand.Int64N(1<<53-1) + 1
	for {
		var code, woken, endings *string
		var version *int64
		row := scheduleRow{}
		r := request{
			sql: "SELECT f.code, " + scheduleColumns("f") + ", f.version, f.woken, f.endings FROM mailbox.fire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) f",
			args: []any{
				h.scheduleShard(f.Name), f.Name, int64(f.Revision), following, millis(f.Through), f.Remove, f.Definition,
				dues, c.ids, c.bodies, c.extras, c.pastColumns, false, c.ttls, c.priorities,
			},
			wide: 13,
		}
		targets := append(append([]any{&code}, row.targets()...), &version, &woken, &endings)
		if err := h.call(ctx, r, one(targets...)); err != nil {
			return "", driver.Schedule{}, err
		}
		h.backend.happened(ctx, endings, woken)
		if code == nil {
			continue // it has only handled what fell due
		}
		h.note(ctx, *version)
		if *code == "1" && len(f.Messages) > 0 {
			h.queue.changed(ctx, len(f.Messages))
		}
		row.name = &f.Name
		return *code, row.schedule(), nil
	}
}

// scheduleShard returns the shard that the messages of a schedule go to. In a queue with strict
// groups that is the one of messages without a group.
func (q *queue) scheduleShard(name string) int32 {
	if q.settings.Load().config.StrictGroups {
		name = ""
	}
	return q.shardOf(name)
}

// schedulesPage is how many schedules one call reads.
const schedulesPage = 16

// Schedules reads schedules; see driver.Queue. It blocks for a round trip, and for one more for
// each 16 if no name is given.
func (h *handle) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	const op = "list schedules"
	return func(yield func(driver.Schedule, error) bool) {
		for after := ""; ; {
			var found []driver.Schedule
			err := h.check(ctx, op)
			if err == nil {
				found, err = h.readSchedules(ctx, name, after)
			}
			if err == nil {
				err = h.check(ctx, op)
			}
			if err != nil {
				yield(driver.Schedule{}, h.outcome(err, op))
				return
			}
			for _, s := range found {
				if !yield(s, nil) {
					return
				}
			}
			if name != "" || len(found) < schedulesPage {
				return
			}
			after = found[len(found)-1].Name
		}
	}
}

// readSchedules reads the schedule of this name, or those after one.
func (q *queue) readSchedules(ctx context.Context, name, after string) (found []driver.Schedule, err error) {
	r := request{
		sql:  "SELECT " + scheduleColumns("s") + " FROM mailbox.schedules($1, $2, $3, $4) s",
		args: []any{name, after, int32(schedulesPage)}, wide: -1, repeatable: true,
	}
	err = q.call(ctx, r, func(rows pgx.Rows) error {
		found = nil
		for rows.Next() {
			var row scheduleRow
			if err := rows.Scan(row.targets()...); err != nil {
				return err
			}
			found = append(found, row.schedule())
		}
		return nil
	})
	return found, err
}

// ScheduledQueues lists the queues that have schedules; see driver.ScheduleLister. It blocks for a
// round trip per 256 queues.
func (b *Backend) ScheduledQueues(ctx context.Context) iter.Seq2[driver.ScheduledQueue, error] {
	const statement = "SELECT q.name, count(*) FROM mailbox.schedule s JOIN mailbox.queue q ON q.qid = s.qid WHERE q.name > $1 GROUP BY q.name ORDER BY q.name LIMIT $2"
	return func(yield func(driver.ScheduledQueue, error) bool) {
		for last := ""; ; {
			var found []driver.ScheduledQueue
			err := b.checkClosed()
			if err == nil {
				r := request{sql: b.sql(statement), args: []any{last, int32(page)}, wide: -1, repeatable: true}
				err = b.call(ctx, r, func(rows pgx.Rows) (err error) {
					found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[driver.ScheduledQueue])
					return err
				})
			}
			if err != nil {
				yield(driver.ScheduledQueue{}, driver.Annotate(err, "", "list schedules"))
				return
			}
			for _, q := range found {
				if !yield(q, nil) {
					return
				}
			}
			if len(found) < page {
				return
			}
			last = found[len(found)-1].Name
		}
	}
}

// A scheduleRow is a schedule as the database has it; of one that does not exist it has nulls.
type scheduleRow struct {
	name              *string
	revision, through *int64
	definition        []byte
	dues, times       []int64
	ids               []pgtype.UUID
	now               *int64
}

// scheduleColumns are those of a scheduleRow, in an answer called alias.
func scheduleColumns(alias string) string {
	s := "(" + alias + ".schedule)."
	return s + "name, " + s + "revision, " + s + "through, " + s + "definition, " + s + "run_dues, " + s + "run_times, " + s + "run_ids, " + alias + ".at"
}

func (r *scheduleRow) targets() []any {
	return []any{&r.name, &r.revision, &r.through, &r.definition, &r.dues, &r.times, &r.ids, &r.now}
}

func (r *scheduleRow) schedule() driver.Schedule {
	s := driver.Schedule{Name: *r.name, Now: time.UnixMilli(*r.now).UTC()}
	if r.revision == nil {
		return s
	}
	s.Definition, s.Revision, s.Through = r.definition, uint64(*r.revision), fromMillis(*r.through)
	for i, id := range r.ids {
		s.Runs = append(s.Runs, driver.Run{Due: fromMillis(r.dues[i]), At: fromMillis(r.times[i]), MessageID: ulid.ULID(id.Bytes).String()})
	}
	return s
}

// millis returns a time in milliseconds since 1970, and 0 if it is not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fromMillis is the inverse of millis.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
