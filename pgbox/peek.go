package pgbox

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/cursor"
)

func (h *handle) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		if err := driver.Annotate(query.Check(), h.name, "peek"); err != nil {
			yield(driver.Peeked{}, err)
			return
		}
		for seen, err := range h.look(ctx, "peek", query) {
			if !yield(seen, err) {
				return
			}
		}
	}
}

// A peekOrder says how the messages in a state are found, and in which order.
type peekOrder struct {
	state driver.State
	// parts are conditions, each of which has an index.
	parts []string
	order string
}

// levelPart is the part of ready messages with priorities, of which each has its order by place.
const levelPart = "state IN ('p', 'h') AND state = o AND priority = k"

// peekOrders are the states in the order in which Peek shows them.
var peekOrders = []peekOrder{
	{driver.StateReady, []string{"state = 'r'", "state IN ('b', 's')", levelPart}, "place"},
	{driver.StateDelayed, []string{"state IN ('d', 'w', 'f') AND state <> 'f'"}, "due"},
	{driver.StateInFlight, []string{"state IN ('d', 'w', 'f') AND state = 'f'"}, "due"},
	{driver.StateDead, []string{"state = 'x'"}, "place"},
}

// endSQL returns the statement that reads the positions of the last messages, the last one first. The arguments are
// those of sql.
func (o peekOrder) endSQL() string {
	text := ""
	for i, part := range o.parts {
		if i > 0 {
			text += " UNION ALL "
		}
		rows := "SELECT seq, " + o.order + " FROM mailbox.message WHERE qid = $1 AND shard = $2 AND " + part + " ORDER BY " + o.order + " DESC, seq DESC LIMIT $3"
		if part == levelPart {
			rows = "SELECT l.* FROM " + levelsFrom + rows + ") l WHERE q.qid = $1"
		}
		text += "(" + rows + ")"
	}
	return "SELECT seq, " + o.order + " FROM (" + text + ") m ORDER BY " + o.order + " DESC, seq DESC OFFSET $3 - 1 LIMIT 1"
}

// levelsFrom begins the lateral join over the orders of a queue's priorities.
const levelsFrom = "mailbox.queue q CROSS JOIN generate_series(1, CASE WHEN q.leveled THEN 9 ELSE 0 END) k CROSS JOIN unnest('{p,h}'::\"char\"[]) o CROSS JOIN LATERAL ("

// sql returns the statement that reads a page: of messages behind a point, and with an id if
// one is given. $1 is the queue, $2 a shard.
func (o peekOrder) sql() string {
	text := "SELECT m.seq, m." + o.order + ", m.id, m.deliveries, m.redrives, m.first_at, m.error, m.error_type, m.reason, m.dead_at, m.due, m.priority, " +
		"m.from_reason, m.from_queue, m.from_deliveries, m.from_error, b.sent_at, b.grp, b.extra, b.body, mailbox.clock() FROM ("
	for i, part := range o.parts {
		if i > 0 {
			text += " UNION ALL "
		}
		rows := "SELECT * FROM mailbox.message WHERE qid = $1 AND shard = $2 AND " + part +
			" AND (" + o.order + ", seq) > ($3, $4) AND " + o.order + " >= $3 AND ($5::uuid IS NULL OR id = $5) ORDER BY " + o.order + ", seq LIMIT $6"
		if part == levelPart {
			rows = "SELECT l.* FROM " + levelsFrom + rows + ") l WHERE q.qid = $1"
		}
		text += "(" + rows + ")"
	}
	return text + ") m CROSS JOIN LATERAL (SELECT * FROM mailbox.body c WHERE c.seq = m.seq OFFSET 0) b ORDER BY m." + o.order + ", m.seq LIMIT $6"
}

// A peekedRow is a message that was read, and where it stands among those in its state.
type peekedRow struct {
	driver.Peeked
	shard   int
	at, seq int64
	age     time.Duration
}

// look yields the messages that match a query, without changing any.
func (h *handle) look(ctx context.Context, op string, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return func(yield func(driver.Peeked, error) bool) {
		err := h.check(ctx, op)
		if err == nil { // what has fallen due is shown in its new state
			_, err = h.usage(ctx, false)
		}
		if err != nil {
			yield(driver.Peeked{}, h.outcome(err, op))
			return
		}
		from, atEnd := peekedFrom{}, false
		if query.Cursor != nil {
			if from, err = parsePeekedFrom(*query.Cursor); err != nil {
				yield(driver.Peeked{}, h.outcome(err, op))
				return
			}
			defer func() {
				if *query.Cursor = ""; !atEnd {
					*query.Cursor = from.String()
				}
			}()
		}
		shown := make(map[string]bool) // a message that changes its state is shown once
		for _, order := range peekOrders {
			if len(query.States) > 0 && !slices.Contains(query.States, order.state) || query.Reason != "" && order.state != driver.StateDead {
				continue
			}
			begin := from.beginning(order.state)
			if query.Last > 0 {
				if begin, err = h.lastOf(ctx, order, query.Last); err != nil {
					yield(driver.Peeked{}, h.outcome(err, op))
					return
				}
			}
			for row, err := range h.inState(ctx, order, query.ID, from.shard, begin) {
				if err == nil {
					err = h.check(ctx, op)
				}
				if err != nil {
					yield(driver.Peeked{}, h.outcome(err, op))
					return
				}
				if shown[row.ID] || !row.matches(query) {
					continue
				}
				shown[row.ID] = true
				if query.Cursor != nil { // otherwise the next state begins at its beginning
					from = peekedFrom{row.shard, row.at, row.seq}
				}
				if !yield(row.Peeked, nil) || len(shown) == query.Limit {
					return
				}
			}
		}
		atEnd = true
	}
}

// A peekedFrom is a point in the order of a state: the message at a position of a shard. The zero value is
// before all messages.
type peekedFrom struct {
	shard   int
	at, seq int64
}

func (f peekedFrom) String() string {
	return cursor.Encode([]uint64{uint64(f.shard), uint64(f.at), uint64(f.seq)})
}

// parsePeekedFrom reads what String returned.
func parsePeekedFrom(text string) (peekedFrom, error) {
	marks, err := cursor.Decode(text, 3)
	if marks == nil || err != nil {
		return peekedFrom{}, err
	}
	return peekedFrom{int(min(marks[0], math.MaxInt32)), int64(marks[1]), int64(marks[2])}, nil
}

// A beginning says behind which point the messages of a shard are read.
type beginning func(shard int) (at, seq int64)

// beginning returns that of the messages in a state behind f.
func (f peekedFrom) beginning(state driver.State) beginning {
	return func(shard int) (at, seq int64) {
		if state == driver.StateReady && shard > f.shard { // ready ones are in the order of shards
			return peekedFrom{}.in(shard)
		}
		return f.in(shard)
	}
}

// in returns the point where the messages of a shard begin that are behind f. Of messages at one
// position, those of the first shard come first.
func (f peekedFrom) in(shard int) (at, seq int64) {
	switch {
	case f == peekedFrom{}:
		return -1 << 62, 0
	case shard < f.shard:
		return f.at, math.MaxInt64
	case shard > f.shard:
		return f.at, math.MinInt64
	}
	return f.at, f.seq
}

// lastOf returns where the last n messages of each shard begin.
func (h *handle) lastOf(ctx context.Context, order peekOrder, n int) (beginning, error) {
	type point struct{ at, seq int64 }
	points := make([]point, len(h.shards))
	for i := range points {
		r := request{sql: order.endSQL(), args: []any{int32(i), int32(min(n, math.MaxInt32))}, wide: -1, repeatable: true}
		err := h.call(ctx, r, func(rows pgx.Rows) error {
			points[i] = point{at: -1 << 62}
			if rows.Next() {
				if err := rows.Scan(&points[i].seq, &points[i].at); err != nil {
					return err
				}
				points[i].seq-- // this message is the first to be read
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return func(shard int) (at, seq int64) { return points[shard].at, points[shard].seq }, nil
}

// matches reports whether a message is one that a query asks for.
func (r *peekedRow) matches(query driver.Query) bool {
	for key, value := range query.Attributes {
		if got, ok := r.Attributes[key]; !ok || got != value {
			return false
		}
	}
	return (query.ID == "" || query.ID == r.ID) && r.age >= query.OlderThan && (query.Reason == "" || query.Reason == r.Reason)
}

// inState yields the messages in one state, or only the one with this id: ready ones in order,
// shard by shard, the others by time. It begins with the ready messages of shard first.
func (h *handle) inState(ctx context.Context, order peekOrder, id string, first int, begin beginning) iter.Seq2[peekedRow, error] {
	return func(yield func(peekedRow, error) bool) {
		var wanted *[16]byte
		if id != "" {
			packed, ok := packedID(id)
			if !ok {
				return
			}
			wanted = &packed
		}
		if order.state == driver.StateReady {
			for n := first; n < len(h.shards); n++ {
				if !h.pages(ctx, order, wanted, []int{n}, begin, yield) {
					return
				}
			}
			return
		}
		all := make([]int, len(h.shards))
		for n := range all {
			all[n] = n
		}
		h.pages(ctx, order, wanted, all, begin, yield)
	}
}

// pages yields the messages of shards in one order. It reports false if yield did.
func (h *handle) pages(ctx context.Context, order peekOrder, id *[16]byte, shards []int, begin beginning, yield func(peekedRow, error) bool) bool {
	type cursor struct {
		rows    []peekedRow
		at, seq int64
		over    bool
	}
	cursors := make([]cursor, len(shards))
	for i := range cursors {
		cursors[i].at, cursors[i].seq = begin(shards[i])
	}
	for {
		first := -1
		for i := range cursors {
			c := &cursors[i]
			if len(c.rows) == 0 && !c.over {
				var err error
				if c.rows, err = h.readPage(ctx, order, shards[i], c.at, c.seq, id); err != nil {
					yield(peekedRow{}, err)
					return false
				}
				if c.over = len(c.rows) < page; len(c.rows) > 0 {
					last := c.rows[len(c.rows)-1]
					c.at, c.seq = last.at, last.seq
				}
			}
			if len(c.rows) > 0 && (first < 0 || c.rows[0].at < cursors[first].rows[0].at) {
				first = i
			}
		}
		if first < 0 {
			return true
		}
		row := cursors[first].rows[0]
		row.shard = shards[first]
		cursors[first].rows = cursors[first].rows[1:]
		if !yield(row, nil) {
			return false
		}
	}
}

// readPage reads the next messages of a shard.
func (h *handle) readPage(ctx context.Context, order peekOrder, shard int, at, seq int64, id *[16]byte) (found []peekedRow, err error) {
	r := request{sql: order.sql(), args: []any{int32(shard), at, seq, id, int32(page)}, wide: -1, repeatable: true}
	err = h.call(ctx, r, func(rows pgx.Rows) error {
		found = nil
		for rows.Next() {
			row, err := h.readPeeked(rows, order.state)
			if err != nil {
				return err
			}
			found = append(found, row)
		}
		return nil
	})
	return found, err
}

func (h *handle) readPeeked(rows pgx.Rows, state driver.State) (row peekedRow, err error) {
	var id pgtype.UUID
	var first, deadAt *int64
	var due, sentAt, now int64
	var priority *int
	var failure, kind, group, packed []byte
	var reason *string
	var before past
	err = rows.Scan(&row.seq, &row.at, &id, &row.Deliveries, &row.Redrives, &first, &failure, &kind, &reason, &deadAt, &due, &priority,
		&before[0], &before[1], &before[2], &before[3], &sentAt, &group, &packed, &row.Body, &now)
	if err != nil {
		return row, err
	}
	row.State, row.ID, row.Group, row.LastError, row.EnqueuedAt = state, ulid.ULID(id.Bytes).String(), string(group), string(failure), wall(sentAt)
	row.age = time.Duration(now-sentAt) * time.Microsecond
	if priority != nil {
		row.Priority = *priority
	}
	if first != nil {
		row.FirstReceivedAt = wall(*first)
	}
	switch state {
	case driver.StateDelayed, driver.StateInFlight:
		row.DueAt = wall(due)
	case driver.StateDead:
		row.Source, row.ErrorType = h.name, string(kind)
		if reason != nil && deadAt != nil {
			row.Reason, row.DeadAt = driver.Reason(*reason), wall(*deadAt)
		}
	}
	return row, readMessage(&row.Message, packed, &before)
}
