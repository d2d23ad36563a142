package pgbox

import (
	"context"
	"database/sql"
	"errors"
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
// a nack that is made in time holds, however late tx commits. tx must wait for the disk: a
// session with synchronous_commit off is refused (ErrInvalid).
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

// txOf returns the transaction of a context, or nil.
func txOf(ctx context.Context) callerTx {
	tx, _ := ctx.Value(txKey{}).(callerTx)
	return tx
}

// worksInTx reports whether an operation can be part of a transaction.
func worksInTx(op string) bool { return op == "send" || op == "ack" || op == "nack" }

// conditionAsync is raised for transactions that do not wait for the disk.
const conditionAsync = "MB002"

// inTx calls a function in the caller's transaction. An error leaves that transaction failed.
func (h *handle) inTx(ctx context.Context, tx callerTx, op, statement string, args ...any) (*string, error) {
	xid, err := tx(ctx, h.backend.sql(statement), append([]any{h.qid}, args...)...)
	if err == nil {
		if xid != nil {
			h.inbox.expect(h.queue, *xid)
		}
		return xid, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
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
	return nil, e
}

// sendInTx sends the messages of op in the caller's transaction.
func (h *handle) sendInTx(ctx context.Context, tx callerTx, op *sendOp, sent []driver.Sent, failed []error) ([]driver.Sent, error) {
	for n, i := range op.positions {
		row := &op.rows[n]
		_, err := h.inTx(ctx, tx, "send", "SELECT mailbox.send_tx($1, $2, $3::text::uuid, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
			row.shard, uuidText(row.id), row.body, row.group, row.extra, row.delay, row.key, row.digest, row.past[0], row.past[1], row.past[2], row.past[3], row.ttl, row.priority, row.unique, row.replaces)
		if err != nil {
			return nil, err
		}
		sent[i] = driver.Sent{ID: op.ids[n]}
	}
	return sent, driver.NewBatchError(failed)
}

// settleInTx acks or nacks in the caller's transaction.
func (h *handle) settleInTx(ctx context.Context, tx callerTx, op string, n int, each func(i int) (settlement, error)) error {
	if err := h.check(ctx, op); err != nil {
		return err
	}
	var failed []error
	for i := range n {
		s, err := each(i)
		if err != nil {
			failed = driver.FailAt(failed, n, i, h.named(err, op))
			continue
		}
		id, shard, ok := h.read(s.receipt)
		var xid *string
		if ok && op == "ack" {
			xid, err = h.inTx(ctx, tx, op, "SELECT mailbox.ack_tx($1, $2, $3, $4, $5::text::uuid)", shard, seqOf(s.receipt), int64(s.receipt.Nonce), uuidText(id))
		} else if ok {
			xid, err = h.inTx(ctx, tx, op, "SELECT mailbox.nack_tx($1, $2, $3, $4, $5::text::uuid, $6, $7, $8)",
				shard, seqOf(s.receipt), int64(s.receipt.Nonce), uuidText(id), s.reason, s.number, []byte(s.cause))
		}
		switch {
		case err != nil:
			return err
		case xid == nil:
			failed = driver.FailAt(failed, n, i, h.expired(op, s.receipt))
		}
	}
	return driver.NewBatchError(failed)
}

// uuidText returns an id as a text that every driver can pass.
func uuidText(id ulid.ULID) string {
	const digits = "0123456789abcdef"
	text := make([]byte, 0, 32)
	for _, b := range id {
		text = append(text, digits[b>>4], digits[b&15])
	}
	return string(text)
}

// inbox is what this process knows of the inbox of a queue: the transactions that it waits for,
// and when it last looked.
type inbox struct {
	mu       sync.Mutex // guards the fields below
	open     map[string]struct{}
	watching bool
	next     time.Time
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

// collect moves what transactions have committed into the queue. It returns those of xids that
// are open.
func (q *queue) collect(ctx context.Context, xids []string) (pending []string, err error) {
	for {
		var done *int
		var woken, endings *string
		r := request{sql: "SELECT * FROM mailbox.collect($1, $2, $3)", args: []any{xids, false}, wide: 2, repeatable: true}
		if err := q.call(ctx, r, one(&done, &pending, &woken, &endings)); err != nil {
			return nil, err
		}
		q.backend.happened(ctx, endings, woken)
		if done != nil {
			if *done > 0 {
				q.changed(ctx, *done)
			}
			return pending, nil
		}
	}
}
