package pgbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// A sendOp is the messages of one call of Send that were not refused.
type sendOp struct {
	positions []int
	ids       []string
	rows      []sendRow
	bytes     int
	done      chan struct{}

	// The answer, when done is closed: a code for each message, see send.sql.
	codes  []byte
	others []ulid.ULID // the messages that keys were used for
	waits  []int64
	err    error
}

// A sendRow is a message as the function send takes it.
type sendRow struct {
	shard       int32
	id          [16]byte
	body        []byte
	group       []byte
	extra       []byte
	delay       int64 // microseconds; below 0 it is minus the time at which the message is due
	ttl         int64 // microseconds; 0 means that of the queue
	priority    int32
	key, digest []byte
	unique      []byte // digest of the unique key
	replaces    bool
	past        past
	hasPast     bool
}

func (op *sendOp) size() (elements, bytes int) { return len(op.rows), op.bytes }

func (h *handle) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := h.check(ctx, "send"); err != nil {
		return nil, err
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	var failed []error
	op := &sendOp{done: make(chan struct{})}
	ids := h.backend.newIDs(len(msgs))
	traits := h.Traits()
	for i := range msgs {
		if err := msgs[i].Check(&traits); err != nil {
			failed = driver.FailAt(failed, len(msgs), i, h.named(err, "send"))
			continue
		}
		op.positions, op.ids = append(op.positions, i), append(op.ids, ids[i])
		op.rows = append(op.rows, h.sendRow(&msgs[i], ids[i], ctx.Done() != nil))
		op.bytes += len(msgs[i].Body)
	}
	sent := make([]driver.Sent, len(msgs))
	if len(op.rows) == 0 {
		return sent, driver.NewBatchError(failed)
	}
	if tx := txOf(ctx); tx != nil {
		return h.sendInTx(ctx, tx, op, sent, failed)
	}
	h.sends.submit(ctx, op)
	select {
	case <-op.done:
	case <-ctx.Done(): // the call is completed
		return nil, ctx.Err()
	}
	if op.err != nil {
		return nil, h.outcome(op.err, "send")
	}
	for n, i := range op.positions {
		var err error
		if sent[i], err = h.sentAs(op, n); err != nil {
			failed = driver.FailAt(failed, len(msgs), i, h.named(err, "send"))
		}
	}
	return sent, driver.NewBatchError(failed)
}

// sendRow returns a message as the function send takes it. A caller that may leave before the
// call is answered keeps its body.
func (q *queue) sendRow(msg *driver.Outgoing, id string, mayLeave bool) sendRow {
	row := sendRow{shard: q.shardFor(msg), body: msg.Body, delay: micros(msg.Delay), ttl: micros(msg.TTL), priority: int32(msg.Priority)}
	if mayLeave || row.body == nil {
		row.body = append(make([]byte, 0, len(msg.Body)), msg.Body...)
	}
	if !msg.DeliverAt.IsZero() {
		row.delay = -dueMicros(msg.DeliverAt)
	}
	row.id, _ = packedID(id)
	if msg.Group != "" {
		row.group = []byte(msg.Group)
	}
	if msg.DedupKey != "" {
		sum := sha256.Sum256(msg.Body)
		row.key, row.digest = []byte(msg.DedupKey), sum[:16]
	}
	if msg.UniqueKey != "" {
		row.unique, row.replaces = uniqueDigest(msg.UniqueKey), msg.Replace
	}
	row.extra, row.past, row.hasPast = packExtra(msg)
	return row
}

// uniqueDigest stands for a unique key in the database.
func uniqueDigest(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:16]
}

// sentAs returns the result of message n.
func (q *queue) sentAs(op *sendOp, n int) (driver.Sent, error) {
	full := func(detail string, wait time.Duration) error {
		return &driver.Error{Code: driver.ErrFull, Detail: detail, RetryAfter: wait}
	}
	switch op.codes[n] {
	case 's':
		return driver.Sent{ID: op.ids[n]}, nil
	case 'd', 'h':
		return driver.Sent{ID: op.others[n].String(), Duplicate: true}, nil
	case 'p':
		return driver.Sent{ID: op.others[n].String(), Duplicate: true, Replaced: true}, nil
	case 'c':
		return driver.Sent{}, &driver.Error{
			Code: driver.ErrConflict, MessageID: op.others[n].String(), Field: "DedupKey", Detail: "was used for another body",
		}
	case 'k':
		return driver.Sent{}, full(fmt.Sprintf("the table of unique keys is full (DedupMax %d)", q.settings.Load().config.Effective().DedupMax), retryAfter)
	case 'w':
		return driver.Sent{}, full("the dedup table is full", time.Duration(op.waits[n])*time.Microsecond)
	}
	return driver.Sent{}, full("the queue is full", retryAfter)
}

// sendColumns are the arguments of the function send.
type sendColumns struct {
	shards                                             []int32
	ids                                                [][16]byte
	bodies, groups, extras, keys, digests, pastColumns [][]byte
	uniques                                            [][]byte
	replaces                                           []bool
	delays, ttls                                       []int64
	priorities                                         []int32
	keyed, unique, mortal, leveled, hasPast            bool
}

func columnsOf(batch []*sendOp) (c sendColumns) {
	for _, op := range batch {
		for i := range op.rows {
			row := &op.rows[i]
			c.shards, c.ids = append(c.shards, row.shard), append(c.ids, row.id)
			c.bodies, c.groups, c.extras = append(c.bodies, row.body), append(c.groups, row.group), append(c.extras, row.extra)
			c.delays, c.ttls = append(c.delays, row.delay), append(c.ttls, row.ttl)
			c.priorities = append(c.priorities, row.priority)
			c.keys, c.digests = append(c.keys, row.key), append(c.digests, row.digest)
			c.pastColumns = append(c.pastColumns, row.past[:]...)
			c.uniques, c.replaces = append(c.uniques, row.unique), append(c.replaces, row.replaces)
			c.unique = c.unique || row.unique != nil
			c.keyed, c.hasPast = c.keyed || row.key != nil, c.hasPast || row.hasPast
			c.mortal, c.leveled = c.mortal || row.ttl != 0, c.leveled || row.priority != 0
		}
	}
	if !c.keyed {
		c.keys, c.digests = nil, nil
	}
	if !c.unique {
		c.uniques, c.replaces = nil, nil
	}
	if !c.mortal {
		c.ttls = nil
	}
	if !c.leveled {
		c.priorities = nil
	}
	if !c.hasPast {
		c.pastColumns = nil
	}
	return c
}

// performSends makes the call for a batch of sends.
func (q *queue) performSends(ctx context.Context, batch []*sendOp) {
	c := columnsOf(batch)
	var codes *string
	var others []pgtype.UUID
	var waits []*int64
	var keys, at, held *int64
	var woken, endings *string
	version, err := q.sendPlain(ctx, &c)
	if version != nil {
		codes = new(string)
	}
	begun := time.Now()
	from := q.lowest(c.shards)
	for err == nil && codes == nil { // until it has not only handled what fell due
		r := request{
			sql: "SELECT * FROM mailbox.send_from($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
			args: []any{
				c.shards, c.ids, c.bodies, c.groups, c.extras, c.delays, c.keys, c.digests, c.pastColumns,
				c.keyed && q.keyRoom.Load() < int64(len(c.ids)), false, from.place, from.due, c.ttls, c.priorities, from.levels,
				c.uniques, c.replaces, c.unique && q.uniqueRoom.Load() < int64(len(c.ids)),
			},
			wide: 11, named: true,
		}
		err = q.call(ctx, r, one(&codes, &others, &waits, &keys, &version, &woken, &endings, &at, &held))
		if err == nil {
			q.backend.happened(ctx, endings, woken)
		}
	}
	if at != nil {
		for _, n := range c.shards {
			q.shards[n].marks.looked(begun, from, *at)
		}
	}
	if err == nil {
		most := int64(q.settings.Load().config.Effective().DedupMax)
		noteKeys(&q.keyRoom, most, len(c.ids), c.keyed, keys)
		noteKeys(&q.uniqueRoom, most, len(c.ids), c.unique, held)
		q.note(ctx, *version)
		q.changed(ctx, len(c.ids))
	}
	first := 0
	for _, op := range batch {
		n := len(op.rows)
		if op.err = err; err == nil {
			op.answer(*codes, others, waits, first)
		}
		first += n
		close(op.done)
	}
}

// sendPlain sends messages the short way and returns the version of the configuration, or nil if they have to go the other one.
func (q *queue) sendPlain(ctx context.Context, c *sendColumns) (version *int64, err error) {
	elsewhere := func(shard int32) bool { return shard != c.shards[0] }
	late := func(delay int64) bool { return delay != 0 }
	if !q.isPlain() || c.keyed || c.unique || c.mortal || c.leveled || c.hasPast || slices.ContainsFunc(c.shards, elsewhere) || slices.ContainsFunc(c.delays, late) {
		return nil, nil
	}
	asked := q.settings.Load().version
	r := request{
		sql: "SELECT mailbox.send_plain($1, $2, $3, $4, $5, $6)", args: []any{c.shards[0], c.ids, c.bodies, c.groups, c.extras},
		wide: -1, named: true,
	}
	err = q.call(ctx, r, one(&version))
	if err == nil && version == nil {
		q.ruled.Store(asked)
	}
	return version, err
}

// answer takes the part of an answer that begins at a position.
func (op *sendOp) answer(codes string, others []pgtype.UUID, waits []*int64, at int) {
	n := len(op.rows)
	if codes == "" {
		op.codes = slices.Repeat([]byte{'s'}, n)
		return
	}
	op.codes, op.others, op.waits = []byte(codes[at:at+n]), make([]ulid.ULID, n), make([]int64, n)
	for i := range n {
		if at+i < len(others) {
			op.others[i] = others[at+i].Bytes
		}
		if at+i < len(waits) && waits[at+i] != nil {
			op.waits[i] = *waits[at+i]
		}
	}
}

// keyShare is the part of the room for keys that a process uses before it counts them
// again: others use it too.
const keyShare = 4

// noteKeys notes how many dedup keys there are, or how many unique keys are held. Counting a million of them for every send would
// be slow, so a process counts again when it has used a part of the room that was left. Where
// little is left, it counts every time, and the bound is exact.
func noteKeys(room *atomic.Int64, most int64, sent int, keyed bool, keys *int64) {
	switch {
	case !keyed:
	case keys != nil:
		room.Store((most - *keys) / keyShare)
	default:
		room.Add(-int64(sent))
	}
}
