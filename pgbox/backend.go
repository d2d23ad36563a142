package pgbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/endings"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// A Backend is the queues of one schema of a database. It is safe for concurrent use.
type Backend struct {
	pool       *pgxpool.Pool
	options    Options
	protection atomic.Pointer[protection]
	heeds      bool // the pool heeds warnings, see HeedWarnings
	observers  endings.Observers
	notices    *notices
	slotWaits  slotWaits
	unnamed    atomic.Bool // statements are not kept in sessions

	ctx    context.Context // ends when the backend is closed
	cancel context.CancelFunc

	startMu  sync.Mutex // guards stopping, and that running does not grow while Close waits
	stopping bool
	running  sync.WaitGroup // goroutines that end with the backend

	idMu sync.Mutex // guards ids
	ids  ident.Source

	mu     sync.Mutex // guards the fields below, and handles of every queue
	queues map[string]*queue
	byQID  map[int32]*queue
	closed bool
}

var (
	_ driver.Backend        = (*Backend)(nil)
	_ driver.Admin          = (*Backend)(nil)
	_ driver.ScheduleLister = (*Backend)(nil)
	_ driver.Pinger         = (*Backend)(nil)
	_ driver.Observable     = (*Backend)(nil)
)

// Open opens the backend on a pool of connections, which stays open when the backend is
// closed. It blocks for a round trip or two, and longer if it migrates. Codes: ErrInvalid,
// ErrNotFound (the schema is missing or too old, and Options.Migrate is not set),
// ErrUnavailable.
func Open(ctx context.Context, pool *pgxpool.Pool, options *Options) (*Backend, error) {
	filled, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if filled.Migrate {
		if err := Migrate(ctx, pool, filled.Schema); err != nil {
			return nil, err
		}
	}
	b := &Backend{pool: pool, options: filled, queues: make(map[string]*queue), byQID: make(map[int32]*queue)}
	if err := b.inspect(ctx); err != nil {
		return nil, driver.Annotate(err, "", "open")
	}
	connection := pool.Config().ConnConfig
	b.unnamed.Store(filled.PollOnly || connection.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement || connection.StatementCacheCapacity == 0)
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	b.notices = newNotices(b)
	b.start(b.keepProtected)
	return b, nil
}

// minServer is the oldest version of the server.
const minServer = 130000

// inspect refuses servers and schemas that this version cannot use, and finds out what
// messages survive.
func (b *Backend) inspect(ctx context.Context) error {
	steps, err := migrations(b.options.Schema)
	if err != nil {
		return err
	}
	done, err := migrated(ctx, b.pool, b.options.Schema)
	if err != nil {
		return err
	}
	if done < len(steps) {
		return &driver.Error{
			Code: driver.ErrNotFound, Field: "Schema",
			Detail: fmt.Sprintf("schema %q has %d of %d migrations; call pgbox.Migrate or set Options.Migrate", b.options.Schema, done, len(steps)),
		}
	}
	var version int
	err = b.attempt(ctx, request{sql: "SELECT current_setting('server_version_num')::int"}, one(&version))
	if err == nil && version >= minServer {
		err = b.checkWarnings(ctx)
	}
	if err == nil && version >= minServer {
		err = b.protect(ctx)
	}
	if err != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Err: err}
	}
	if version < minServer {
		return &driver.Error{Code: driver.ErrUnsupported, Detail: fmt.Sprintf("server version %d; want PostgreSQL 13 or later", version)}
	}
	return nil
}

// sql puts the schema into a statement, in which mailbox. stands for it.
func (b *Backend) sql(statement string) string {
	return strings.ReplaceAll(statement, "mailbox.", b.options.Schema+".")
}

// start runs a function that Close waits for.
func (b *Backend) start(f func()) {
	b.startMu.Lock()
	defer b.startMu.Unlock()
	if b.stopping { // a call that was checked before Close, and submitted after
		go f()
		return
	}
	b.running.Go(f)
}

// newIDs returns ids for n messages.
func (b *Backend) newIDs(n int) []string {
	text := make([]byte, n*ident.TextLen)
	now := time.Now().UnixNano()
	b.idMu.Lock()
	for i := range n {
		b.ids.Next(now, text[i*ident.TextLen:][:ident.TextLen])
	}
	b.idMu.Unlock()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = string(text[i*ident.TextLen:][:ident.TextLen])
	}
	return ids
}

// OpenQueue returns a handle on the queue called name, and creates the queue if it does not
// exist. It blocks for a round trip or two. Codes: ErrInvalid, ErrClosed, ErrUnavailable.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.enter(ctx, name)
	if err != nil {
		return nil, driver.Annotate(err, name, "open")
	}
	return &handle{queue: q, closed: make(chan struct{})}, nil
}

// DefaultTraits returns the traits of a queue that OpenQueue creates. It does no I/O, and
// creates none.
func (b *Backend) DefaultTraits() driver.Traits { return b.newSettings(b.options.Defaults, 0).traits }

// enter opens a queue, or joins the handles that have it open in this process.
func (b *Backend) enter(ctx context.Context, name string) (*queue, error) {
	if err := b.checkOpen(ctx, name); err != nil {
		return nil, err
	}
	for {
		found, err := b.look(ctx, name)
		if err != nil {
			return nil, err
		}
		if found != nil {
			return b.join(name, found)
		}
		config := b.options.Defaults
		if config.DeadLetterTo == name {
			config.DeadLetterTo = "" // dead letters of the target stay there
		}
		if _, err := b.configure(ctx, name, config, nil); err != nil {
			return nil, err
		}
	}
}

func (b *Backend) checkOpen(ctx context.Context, name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if err := b.checkClosed(); err != nil {
		return err
	}
	return ctx.Err()
}

func (b *Backend) checkClosed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &driver.Error{Code: driver.ErrClosed}
	}
	return nil
}

// join returns the queue that was found, for one more handle.
func (b *Backend) join(name string, found *stored) (*queue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, &driver.Error{Code: driver.ErrClosed}
	}
	q := b.queues[name]
	if q == nil || q.qid != found.qid {
		if q != nil { // it was deleted, and created again
			q.end(driver.ErrNotFound)
			delete(b.byQID, q.qid)
		}
		q = newQueue(b, name, found)
		b.queues[name], b.byQID[q.qid] = q, q
	}
	q.adopt(found)
	q.handles++
	return q, nil
}

// leave closes one handle on a queue. The last one forgets it.
func (b *Backend) leave(q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.handles--; q.handles > 0 {
		return
	}
	q.stopTimer()
	b.forgetLocked(q)
}

func (b *Backend) forgetLocked(q *queue) {
	if b.queues[q.name] == q {
		delete(b.queues, q.name)
		delete(b.byQID, q.qid)
	}
}

// changed wakes receives that wait on a queue: n of this process, and those of others.
func (b *Backend) changed(ctx context.Context, qid int32, n int) {
	b.mu.Lock()
	q := b.byQID[qid]
	b.mu.Unlock()
	if q != nil {
		q.waiters.Wake(n)
	}
	b.notices.announce(ctx, qid)
}

// noticed wakes the receives that wait on a queue of which another process has told, or the waits for
// a slot, whose numbers are below 0.
func (b *Backend) noticed(qid int32) {
	if qid < 0 {
		b.slotWaits.wake(qid)
		return
	}
	b.mu.Lock()
	q := b.byQID[qid]
	b.mu.Unlock()
	if q != nil {
		q.waiters.Wake(q.waiters.Len())
	}
}

// wakeAll wakes all receives that wait: notices may have been missed.
func (b *Backend) wakeAll() {
	b.slotWaits.wakeAll()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		q.waiters.Wake(q.waiters.Len())
	}
}

// Ping returns nil if the server answers and accepts writes. It blocks for a round trip and
// does not retry. Codes: ErrClosed, ErrUnavailable.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.checkClosed(); err != nil {
		return driver.Annotate(err, "", "ping")
	}
	var readOnly string
	err := b.attempt(ctx, request{sql: "SELECT current_setting('transaction_read_only')"}, one(&readOnly))
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &driver.Error{Code: driver.ErrUnavailable, Op: "ping", Err: err}
	case readOnly != "off":
		return &driver.Error{Code: driver.ErrUnavailable, Op: "ping", Detail: "the server is read-only; name all servers in the URL, with target_session_attrs=read-write"}
	}
	return nil
}

// Close ends all handles and waits until running calls have been answered. Receives that wait
// return ErrClosed, and so do all later calls. Messages stay in the database, and the pool
// stays open. Closing twice is fine.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for _, q := range b.queues {
		q.end(driver.ErrClosed)
	}
	clear(b.queues)
	clear(b.byQID)
	b.mu.Unlock()
	b.cancel()
	b.startMu.Lock()
	b.stopping = true
	b.startMu.Unlock()
	b.running.Wait()
	return nil
}

// Observe calls f for every ending in a call of this process, until stop is called; see
// driver.Observable.
func (b *Backend) Observe(f func(driver.Ending)) (stop func()) { return b.observers.Add(f) }

// query runs a statement whose rows are read with scan, one by one.
func (b *Backend) query(ctx context.Context, statement string, args []any, scan func(pgx.Rows) error) error {
	return b.call(ctx, request{sql: b.sql(statement), args: args, wide: -1, repeatable: true}, func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return nil
	})
}
