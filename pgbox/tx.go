package pgbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// txKey is the key of a transaction in a context.
type txKey struct{}

// A callerTx is a transaction of the caller. It runs a statement that returns one text, or null.
type callerTx func(ctx context.Context, statement string, args ...any) (*string, error)

// InTx returns a context in which sends, acks and nacks on queues of a backend are part of tx,
// which is of the same database: they take effect if and when tx commits. Other operations are
// refused there, with ErrUnsupported. It is what SendTx, AckTx and NackTx use.
//
// A message that is sent becomes visible within 100 ms after the commit, behind those that were
// sent meanwhile; messages of one transaction keep their order. Its dedup key and its
// unique key are judged then: a duplicate is dropped, or replaces the message that holds the key. Bounds of the queue may be exceeded, and a delay and a time to live begin then. An ack or
// a nack that is made in time holds, however late tx commits. tx must wait for what sends wait for, the disk and that of a synchronous
// standby: a session with synchronous_commit off, or local with a standby, is refused (ErrInvalid).
func InTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, callerTx(func(ctx context.Context, statement string, args ...any) (answer *string, err error) {
		return answer, tx.QueryRow(ctx, statement, args...).Scan(&answer)
	}))
}

// InSQLTx is InTx for a transaction of database/sql, with any driver for PostgreSQL.
func InSQLTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, callerTx(func(ctx context.Context, statement string, args ...any) (answer *string, err error) {
		return answer, tx.QueryRowContext(ctx, statement, args...).Scan(&answer)
	}))
}

// SendTx sends a message as part of tx; see InTx. m is a *mailbox.Mailbox.
func SendTx[V, O, R any](ctx context.Context, tx pgx.Tx, m interface {
	Send(ctx context.Context, value V, options ...O) (R, error)
}, value V, options ...O) (R, error) {
	return m.Send(InTx(ctx, tx), value, options...)
}

// SendAllTx sends messages as part of tx, in order; see InTx. m is a *mailbox.Mailbox.
func SendAllTx[V, O, R any](ctx context.Context, tx pgx.Tx, m interface {
	SendAll(ctx context.Context, values []V, options ...O) ([]R, error)
}, values []V, options ...O) ([]R, error) {
	return m.SendAll(InTx(ctx, tx), values, options...)
}

// AckTx acks a message as part of tx, together with what its handler has written; see InTx.
func AckTx(ctx context.Context, tx pgx.Tx, message interface {
	Ack(ctx context.Context) error
}) error {
	return message.Ack(InTx(ctx, tx))
}

// NackTx gives a message back as part of tx; see InTx.
func NackTx(ctx context.Context, tx pgx.Tx, message interface {
	Nack(ctx context.Context, delay time.Duration, cause error) error
}, delay time.Duration, cause error) error {
	return message.Nack(InTx(ctx, tx), delay, cause)
}

// SendSQLTx is SendTx for a transaction of database/sql; see InSQLTx.
func SendSQLTx[V, O, R any](ctx context.Context, tx *sql.Tx, m interface {
	Send(ctx context.Context, value V, options ...O) (R, error)
}, value V, options ...O) (R, error) {
	return m.Send(InSQLTx(ctx, tx), value, options...)
}

// SendAllSQLTx is SendAllTx for a transaction of database/sql; see InSQLTx.
func SendAllSQLTx[V, O, R any](ctx context.Context, tx *sql.Tx, m interface {
	SendAll(ctx context.Context, values []V, options ...O) ([]R, error)
}, values []V, options ...O) ([]R, error) {
	return m.SendAll(InSQLTx(ctx, tx), values, options...)
}

// AckSQLTx is AckTx for a transaction of database/sql; see InSQLTx.
func AckSQLTx(ctx context.Context, tx *sql.Tx, message interface {
	Ack(ctx context.Context) error
}) error {
	return message.Ack(InSQLTx(ctx, tx))
}

// NackSQLTx is NackTx for a transaction of database/sql; see InSQLTx.
func NackSQLTx(ctx context.Context, tx *sql.Tx, message interface {
	Nack(ctx context.Context, delay time.Duration, cause error) error
}, delay time.Duration, cause error) error {
	return message.Nack(InSQLTx(ctx, tx), delay, cause)
}

// txOf returns the transaction of a context, or nil.
func txOf(ctx context.Context) callerTx {
	tx, _ := ctx.Value(txKey{}).(callerTx)
	return tx
}

// worksInTx reports whether an operation can be part of a transaction.
func worksInTx(op string) bool { return op == "send" || op == "ack" || op == "nack" }

// conditionAsync is raised for transactions that wait for less than sends do.
const conditionAsync = "MB002"

// inTx calls a function in the caller's transaction. An error leaves that transaction failed.
func (h *handle) inTx(ctx context.Context, tx callerTx, op, statement string, args ...any) (string, error) {
	replicated := h.backend.protection.Load().durability == driver.DurabilityReplicated
	answer, err := tx(ctx, h.backend.sql(statement), append([]any{h.qid, replicated}, args...)...)
	if err == nil {
		return *answer, nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	e := &driver.Error{Code: driver.ErrUnavailable, Op: op, Queue: h.name, Err: err}
	var state interface{ SQLState() string } // every driver for PostgreSQL has it
	if errors.As(err, &state) {
		switch state.SQLState() {
		case conditionGone:
			e.Code = driver.ErrNotFound
		case conditionAsync:
			e.Code, e.Field = driver.ErrInvalid, "tx"
		}
	}
	return "", e
}

// A txCall is the arguments of a call in a transaction of the caller, in types that every driver
// can pass: arrays of numbers and ids as text, and bytes one after the other.
type txCall struct {
	ids, numbers, sizes []byte
	data                []byte
	elements            int
}

// newTxCall returns arguments without elements. Their bytes are never null, however few.
func newTxCall() txCall { return txCall{data: []byte{}} }

// add adds an element. Nil bytes are null.
func (c *txCall) add(id ulid.ULID, numbers []int64, data ...[]byte) {
	c.elements++
	c.ids = append(hex.AppendEncode(c.ids, id[:]), ',')
	for _, n := range numbers {
		c.numbers = append(strconv.AppendInt(c.numbers, n, 10), ',')
	}
	for _, part := range data {
		size := len(part)
		if part == nil {
			size = -1
		}
		c.sizes = append(strconv.AppendInt(c.sizes, int64(size), 10), ',')
		c.data = append(c.data, part...)
	}
}

// arrayText returns elements, each with a comma behind it, as an array of the database.
func arrayText(elements []byte) string {
	return "{" + string(bytes.TrimSuffix(elements, []byte(","))) + "}"
}

// sendInTx sends the messages of op in the caller's transaction.
func (h *handle) sendInTx(ctx context.Context, tx callerTx, op *sendOp, sent []driver.Sent, failed []error) ([]driver.Sent, error) {
	for begin := 0; begin < len(op.rows); {
		c := newTxCall()
		for n := begin; n < len(op.rows) && (c.elements == 0 || c.elements < maxCallElements && len(c.data)+len(op.rows[n].body) <= maxCallBytes); n++ {
			row := &op.rows[n]
			numbers := []int64{int64(row.shard), row.delay, row.ttl, int64(row.priority), 0}
			if row.replaces {
				numbers[4] = 1
			}
			c.add(row.id, numbers, row.body, row.group, row.extra, row.key, row.digest, row.past[0], row.past[1], row.past[2], row.past[3], row.unique)
		}
		xid, err := h.inTx(ctx, tx, "send", "SELECT mailbox.send_all_tx($1, $2, $3::text::uuid[], $4::text::bigint[], $5::bytea, $6::text::int[])",
			arrayText(c.ids), arrayText(c.numbers), c.data, arrayText(c.sizes))
		if err != nil {
			return nil, err
		}
		h.inbox.expect(h.queue, xid)
		begin += c.elements
	}
	for n, i := range op.positions {
		sent[i] = driver.Sent{ID: op.ids[n]}
	}
	return sent, driver.NewBatchError(failed)
}

// settleInTx acks or gives back in the caller's transaction.
func (h *handle) settleInTx(ctx context.Context, tx callerTx, op string, n int, each func(i int) (settlement, error)) error {
	if err := h.check(ctx, op); err != nil {
		return err
	}
	var failed []error
	var positions []int
	var whats []byte
	c := newTxCall()
	for i := range n {
		s, err := each(i)
		if err != nil {
			failed = driver.FailAt(failed, n, i, h.named(err, op))
			continue
		}
		id, shard, ok := h.read(s.receipt)
		if !ok {
			failed = driver.FailAt(failed, n, i, h.expired(op, s.receipt))
			continue
		}
		what := "a"
		if op == "nack" {
			what = s.reason
		}
		positions, whats = append(positions, i), append(whats, what...)
		c.add(id, []int64{int64(shard), seqOf(s.receipt), int64(s.receipt.Nonce), s.number, int64(len(c.data)) + 1, int64(len(s.cause))}, []byte(s.cause))
	}
	if len(positions) == 0 {
		return driver.NewBatchError(failed)
	}
	answer, err := h.inTx(ctx, tx, op, "SELECT mailbox.settle_tx($1, $2, $3::text, $4::text::uuid[], $5::text::bigint[], $6::bytea)",
		string(whats), arrayText(c.ids), arrayText(c.numbers), c.data)
	if err != nil {
		return err
	}
	codes, xid, settled := strings.Cut(answer, " ")
	if settled {
		h.inbox.expect(h.queue, xid)
	}
	for k, i := range positions {
		if codes[k] != 's' {
			expired, _ := each(i) // was read above
			failed = driver.FailAt(failed, n, i, h.expired(op, expired.receipt))
		}
	}
	return driver.NewBatchError(failed)
}

// inbox is what this process knows of the inbox of a queue: the transactions that it waits for,
// when it looks next, and what the last look could see.
type inbox struct {
	mu       sync.Mutex // guards the fields below
	open     map[string]struct{}
	watching bool
	next     time.Time
	// seen is a snapshot of the server, or nil. All that it could see was moved. It is a hint, like marks: after a failover the
	// numbers of transactions may begin at earlier ones, so now and then a look begins without it.
	seen     *string
	nextFull time.Time
}

// mark returns what a look need not look at.
func (in *inbox) mark() *string {
	in.mu.Lock()
	defer in.mu.Unlock()
	if time.Now().After(in.nextFull) {
		return nil
	}
	return in.seen
}

// looked notes what a look could see that began behind a mark.
func (in *inbox) looked(begun time.Time, from *string, seen string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.seen = &seen
	if from == nil {
		in.nextFull = time.Now().Add(max(minFull, fullShare*time.Since(begun)))
	}
}

// doubt makes the next look look at everything.
func (in *inbox) doubt() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.seen = nil
}

// How often the inbox is looked at: while a transaction of this process is open, and at least
// while messages are received.
const (
	firstLook    = 10 * time.Millisecond
	lastLook     = time.Second
	collectEvery = 50 * time.Millisecond
)

// expect looks for a transaction until it has ended.
func (in *inbox) expect(q *queue, xid string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.open == nil {
		in.open = make(map[string]struct{})
	}
	in.open[xid] = struct{}{}
	if !in.watching && q.backend.ctx.Err() == nil {
		in.watching = true
		q.backend.start(func() { in.watch(q) })
	}
}

// watch collects until no transaction of this process is open.
func (in *inbox) watch(q *queue) {
	for wait := firstLook; ; wait = min(wait*2, collectEvery) {
		in.mu.Lock()
		xids := make([]string, 0, len(in.open))
		for xid := range in.open {
			xids = append(xids, xid)
		}
		if len(xids) == 0 || q.backend.ctx.Err() != nil {
			in.watching = false
			in.mu.Unlock()
			return
		}
		in.mu.Unlock()
		pending, err := q.collect(q.backend.ctx, xids)
		if err != nil {
			wait = lastLook // the receives of any process collect too
		} else {
			in.ended(xids, pending)
		}
		_ = backoff.Pause(q.backend.ctx, wait)
	}
}

// ended forgets transactions that are not pending.
func (in *inbox) ended(xids, pending []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, xid := range xids {
		delete(in.open, xid)
	}
	for _, xid := range pending {
		in.open[xid] = struct{}{}
	}
}

// collectSometimes collects if the last time was long enough ago. Where a held transaction makes
// looking slow, it looks less often.
func (q *queue) collectSometimes(ctx context.Context) {
	now := time.Now()
	q.inbox.mu.Lock()
	due := now.After(q.inbox.next)
	if due {
		q.inbox.next = now.Add(callTimeout) // one goroutine collects
	}
	q.inbox.mu.Unlock()
	if !due {
		return
	}
	_, _ = q.collect(ctx, nil) // the next receive tries again
	q.inbox.mu.Lock()
	q.inbox.next = time.Now().Add(max(collectEvery, 10*time.Since(now)))
	q.inbox.mu.Unlock()
}

// collectMost is how many rows one call moves.
const collectMost = 1000

// collect moves what transactions have committed into the queue. It returns those of xids that
// are open.
func (q *queue) collect(ctx context.Context, xids []string) (pending []string, err error) {
	from := q.lowest(q.numbers())
	for {
		begun, mark := time.Now(), q.inbox.mark()
		var done *int
		var woken, endings *string
		var seen string
		r := request{
			sql:  "SELECT * FROM mailbox.collect($1, $2, $3, $4, $5, $6, $7)",
			args: []any{xids, false, mark, from.place, from.due, from.levels}, wide: 2, repeatable: true,
		}
		if err := q.call(ctx, r, one(&done, &pending, &woken, &endings, &seen)); err != nil {
			q.inbox.doubt()
			return nil, err
		}
		q.backend.happened(ctx, endings, woken)
		if done == nil {
			continue
		}
		if *done > 0 {
			q.changed(ctx, *done)
		}
		if *done < collectMost {
			q.inbox.looked(begun, mark, seen)
			return pending, nil
		}
	}
}
