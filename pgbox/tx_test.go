package pgbox

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// hold is a visibility that does not end during a test.
const hold = 10 * time.Minute

// txQueue opens a queue of a backend in a schema of its own, with a configuration.
func txQueue(t *testing.T, config driver.Config) (*Backend, driver.Queue) {
	t.Helper()
	b := open(t, pgtest.Shared(t).Pool(t), &Options{Schema: pgtest.Schema()})
	if err := b.ConfigureQueue(t.Context(), "orders", config); err != nil {
		t.Fatal(err)
	}
	q, err := b.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return b, q
}

func begin(t *testing.T, b *Backend) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) }) // most are over
	return tx
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receiveBodies receives messages until it has n, and returns their bodies, joined.
func receiveBodies(t *testing.T, q driver.Queue, n int) (text string, got []driver.Delivery) {
	t.Helper()
	for len(got) < n {
		more, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: n - len(got), Visibility: hold, Wait: time.Minute})
		ok(t, err)
		if len(more) == 0 {
			t.Fatalf("received %d messages, want %d", len(got), n)
		}
		got = append(got, more...)
	}
	for _, d := range got {
		text += string(d.Body)
	}
	return text, got
}

func outgoing(bodies ...string) (msgs []driver.Outgoing) {
	for _, body := range bodies {
		msgs = append(msgs, driver.Outgoing{Body: []byte(body)})
	}
	return msgs
}

func TestSendInTransactionIsVisibleAfterCommit(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]driver.Config{"plain": {}, "strict": {StrictGroups: true}} {
		t.Run(name, func(t *testing.T) {
			b, q := txQueue(t, config)
			tx, lost := begin(t, b), begin(t, b)
			_, err := q.Send(InTx(t.Context(), tx), outgoing("a", "b"))
			ok(t, err)
			_, err = q.Send(InTx(t.Context(), lost), outgoing("lost"))
			ok(t, err)
			_, err = q.Send(t.Context(), outgoing("c")) // no open transaction delays it
			ok(t, err)
			if text, _ := receiveBodies(t, q, 1); text != "c" {
				t.Fatalf("received %q before the commit, want c", text)
			}
			ok(t, tx.Commit(t.Context()))
			ok(t, lost.Rollback(t.Context()))
			if config.StrictGroups { // c blocks its group
				stats, err := q.Stats(t.Context())
				for err == nil && stats.Ready < 2 {
					<-time.After(5 * time.Millisecond)
					stats, err = q.Stats(t.Context())
				}
				ok(t, err)
				return
			}
			if text, _ := receiveBodies(t, q, 2); text != "ab" {
				t.Fatalf("received %q after the commit, want ab", text)
			}
			stats, err := q.Stats(t.Context())
			ok(t, err)
			if stats.Waiting() != 3 {
				t.Errorf("got %+v; a message of a transaction that was rolled back is there", stats)
			}
		})
	}
}

func TestAckInTransactionHoldsHoweverLateItCommits(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("acked", "back"))
	ok(t, err)
	got, tx, lost := ackInTime(t, b, q)
	ok(t, lost.Rollback(t.Context()))
	if text, _ := receiveBodies(t, q, 1); text != "back" { // after both leases have ended
		t.Fatalf("received %q, want back", text)
	}
	ok(t, tx.Commit(t.Context()))
	stats, err := q.Stats(t.Context())
	ok(t, err)
	if stats.Waiting() != 1 {
		t.Errorf("got %+v, want only the message in flight", stats)
	}
	expired := q.Ack(InTx(t.Context(), begin(t, b)), []driver.Receipt{got[0].Receipt})
	if driver.At(expired, 0) == nil {
		t.Error("a receipt could be acked twice")
	}
}

// ackInTime receives two messages and acks each in a transaction that it leaves open, before
// their leases end, which they do during the test. On a slow machine it tries again with longer leases.
func ackInTime(t *testing.T, b *Backend, q driver.Queue) (got []driver.Delivery, first, second pgx.Tx) {
	t.Helper()
	for lease := 4 * time.Second; ; lease *= 2 {
		received := time.Now()
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: lease, Wait: 20 * time.Second})
		ok(t, err)
		if len(got) != 2 {
			t.Fatalf("received %d messages, want 2", len(got))
		}
		first, second := begin(t, b), begin(t, b)
		err = errors.Join(q.Ack(InTx(t.Context(), first), []driver.Receipt{got[0].Receipt}), q.Ack(InTx(t.Context(), second), []driver.Receipt{got[1].Receipt}))
		if time.Since(received) < lease {
			ok(t, err)
			return got, first, second
		}
		ok(t, errors.Join(first.Rollback(t.Context()), second.Rollback(t.Context())))
	}
}

func TestNackInTransactionOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	db := stdlib.OpenDBFromPool(b.pool)
	defer func() { _ = db.Close() }()
	_, err := q.Send(t.Context(), outgoing("a"))
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
	ok(t, err)
	ok(t, q.Nack(InSQLTx(t.Context(), tx), []driver.Nack{{Receipt: got[0].Receipt, Cause: "failed"}}))
	_, err = q.Send(InSQLTx(t.Context(), tx), outgoing("b"))
	ok(t, err)
	ok(t, tx.Commit())
	text, got := receiveBodies(t, q, 2)
	if text != "ab" || got[0].Deliveries != 2 || got[0].LastError != "failed" {
		t.Errorf("received %q, delivery %d with last error %q; want ab, 2 and failed", text, got[0].Deliveries, got[0].LastError)
	}
}

func TestReleaseAndDueTimeInTransaction(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("released", "put back", "other"))
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	tx, lost := begin(t, b), begin(t, b)
	ok(t, q.Nack(InTx(t.Context(), tx), []driver.Nack{
		{Receipt: got[0].Receipt, Mode: driver.NackRelease}, {Receipt: got[1].Receipt, Mode: driver.NackPutBack},
	}))
	due := []driver.Outgoing{{Body: []byte("past"), DeliverAt: time.Now().Add(-time.Hour)}, {Body: []byte("due"), DeliverAt: time.Now().Add(time.Hour)}}
	_, err = q.Send(InTx(t.Context(), tx), due)
	ok(t, err)
	_, err = q.Send(InTx(t.Context(), lost), due)
	ok(t, err)
	ok(t, lost.Rollback(t.Context()))
	ok(t, tx.Commit(t.Context()))
	text, again := receiveBodies(t, q, 4) // in an order that depends on when they are moved
	for _, d := range again {
		if d.Deliveries != 1 || d.Released != (string(d.Body) == "released" || string(d.Body) == "put back") {
			t.Errorf("%s: delivery %d, released %v", d.Body, d.Deliveries, d.Released)
		}
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Delayed != 1 || stats.InFlight != 4 {
		t.Fatalf("received %q: %+v, %v", text, stats, err)
	}
}

func TestTransactionsThatDoNotWaitForTheDiskAreRefused(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	tx := begin(t, b)
	_, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = off")
	ok(t, err)
	if _, err := q.Send(InTx(t.Context(), tx), outgoing("a")); !isCode(err, driver.ErrInvalid) {
		t.Errorf("send: got %v, want %v", err, driver.ErrInvalid)
	}
	ok(t, tx.Rollback(t.Context()))
	tx = begin(t, b)
	_, err = tx.Exec(t.Context(), "SET LOCAL synchronous_commit = local") // there is no standby
	ok(t, err)
	_, err = q.Send(InTx(t.Context(), tx), outgoing("a"))
	ok(t, err)
	if _, err := q.Stats(InTx(t.Context(), tx)); !isCode(err, driver.ErrUnsupported) {
		t.Errorf("stats: got %v, want %v", err, driver.ErrUnsupported)
	}
}

// TestSavepointTakesItsMessagesBack (PG-2) rolls back to a savepoint, and commits what was sent and acked outside of it.
func TestSavepointTakesItsMessagesBack(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("acked", "kept"))
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	tx := begin(t, b)
	_, err = q.Send(InTx(t.Context(), tx), outgoing("sent"))
	ok(t, err)
	ok(t, q.Ack(InTx(t.Context(), tx), []driver.Receipt{got[0].Receipt}))
	savepoint, err := tx.Begin(t.Context())
	ok(t, err)
	_, err = q.Send(InTx(t.Context(), savepoint), outgoing("lost"))
	ok(t, err)
	ok(t, q.Ack(InTx(t.Context(), savepoint), []driver.Receipt{got[1].Receipt}))
	ok(t, savepoint.Rollback(t.Context()))
	ok(t, tx.Commit(t.Context()))
	collect(t, q)
	if text, _ := receiveBodies(t, q, 1); text != "sent" {
		t.Errorf("received %q, want sent", text)
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{InFlight: 2}) {
		t.Errorf("got %+v, %v; want only the messages sent and kept, in flight", stats, err)
	}
}

// TestAckInTwoTransactionsHoldsOnce (PG-2) acks a delivery in a transaction while another one that has acked it is open.
func TestAckInTwoTransactionsHoldsOnce(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	for name, test := range map[string]struct {
		end  func(tx pgx.Tx) error
		want driver.Code
	}{
		"commits":    {func(tx pgx.Tx) error { return tx.Commit(t.Context()) }, driver.ErrReceiptExpired},
		"rolls back": {func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, ""},
	} {
		_, err := q.Send(t.Context(), outgoing("a"))
		ok(t, err)
		_, got := receiveBodies(t, q, 1)
		first, second := begin(t, b), begin(t, b)
		ok(t, q.Ack(InTx(t.Context(), first), []driver.Receipt{got[0].Receipt}))
		acked := make(chan error, 1)
		go func() { acked <- q.Ack(InTx(t.Context(), second), []driver.Receipt{got[0].Receipt}) }()
		proctest.Eventually(t, time.Minute, "the second transaction waits", func() (waits bool) {
			ok(t, b.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pid = $1", second.Conn().PgConn().PID()).Scan(&waits))
			return waits
		})
		ok(t, test.end(first))
		if err := driver.At(<-acked, 0); test.want == "" && err != nil || test.want != "" && !isCode(err, test.want) {
			t.Errorf("the first transaction %s: got %v, want %q", name, err, test.want)
		}
		ok(t, second.Commit(t.Context())) // an expired receipt leaves the transaction usable
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Waiting() != 0 {
		t.Errorf("got %+v, %v; want an empty queue", stats, err)
	}
}

// TestTransactionsOfAnyIsolationLevelSendAndAck (PG-2) acks what was received before the transaction began; it cannot see later deliveries.
func TestTransactionsOfAnyIsolationLevelSendAndAck(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		_, err := q.Send(t.Context(), outgoing("a", "b"))
		ok(t, err)
		_, got := receiveBodies(t, q, 1)
		tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		ok(t, err)
		_, err = q.Send(InTx(t.Context(), tx), outgoing("c"))
		ok(t, err)
		ok(t, q.Ack(InTx(t.Context(), tx), []driver.Receipt{got[0].Receipt}))
		_, later := receiveBodies(t, q, 1)
		err = q.Ack(InTx(t.Context(), tx), []driver.Receipt{later[0].Receipt})
		if !isCode(driver.At(err, 0), driver.ErrReceiptExpired) { // its snapshot is of before the delivery
			t.Errorf("%s: ack of what was received later: %v, want %v", level, err, driver.ErrReceiptExpired)
		}
		ok(t, tx.Commit(t.Context()))
		collect(t, q)
		if text, _ := receiveBodies(t, q, 1); text != "c" {
			t.Errorf("%s: received %q, want c", level, text)
		}
	}
}

func isCode(err error, code driver.Code) bool {
	e, ok := err.(*driver.Error)
	return ok && e.Code == code
}
