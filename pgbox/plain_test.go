package pgbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// hideRules takes away the functions that know all rules, and returns a function that brings them back.
func hideRules(t *testing.T, b *Backend) (bringBack func()) {
	t.Helper()
	rename := func(from, to string) {
		statement := `DO $$ DECLARE f text; BEGIN
			FOR f IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '%s'::regnamespace AND p.proname = '%s' LOOP EXECUTE 'ALTER FUNCTION ' || f || ' RENAME TO %s'; END LOOP; END $$`
		_, err := b.pool.Exec(t.Context(), fmt.Sprintf(statement, b.options.Schema, from, to), pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	names := []string{"send_from", "receive", "ack"}
	for _, name := range names {
		rename(name, name+"_hidden")
	}
	return func() {
		for _, name := range names {
			rename(name+"_hidden", name)
		}
	}
}

// TestPlainQueueNeedsOnlyTheShortWays sends, receives and acks without the functions that know all rules (PG-1).
func TestPlainQueueNeedsOnlyTheShortWays(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	lookOnce(t, q)
	bringBack := hideRules(t, b)
	_, err := q.Send(t.Context(), outgoing("a", "b", "c"))
	ok(t, err)
	_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("d"), Group: "g", Attributes: map[string]string{"k": "v"}}})
	ok(t, err)
	text, got := receiveBodies(t, q, 4)
	if text != "abcd" || got[3].Group != "g" || len(got[3].Attributes) != 1 || got[0].Deliveries != 1 || got[0].FirstReceivedAt.IsZero() {
		t.Errorf("received %q, %+v; want a to d as they were sent", text, got)
	}
	slices.Reverse(got)
	ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt, got[1].Receipt, got[2].Receipt, got[3].Receipt}))
	bringBack()
	if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{}) {
		t.Errorf("got %+v, %v; want an empty queue", stats, err)
	}
}

// TestOneCallServesRequestsInTheirOrder makes a call for several requests, as one process gathers them (ORD-1).
func TestOneCallServesRequestsInTheirOrder(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	lookOnce(t, q)
	_, err := q.Send(t.Context(), outgoing("a", "b", "c", "d", "e"))
	ok(t, err)
	from := marksOf(q).forReceive()
	for _, test := range []struct {
		name, most, bytes, vis, want string
	}{
		{"as many as each wants", "{2,1,4,1}", "{0,0,9,0}", "{60,60,60,60}", "0a 0b 1c 2d 2e"},
		{"sizes that bind", "{2,2,2}", "{1,0,0}", "{60,60,60}", "0a 1b 1c 2d 2e"},
		{"leases of different lengths", "{1,2}", "{0,0}", "{60,90}", "0a 1b 1c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tx := begin(t, b)
			statement := fmt.Sprintf("SELECT request || convert_from(body, 'UTF8'), deliveries FROM %s.take(%d, 0, $1::text::int[], $2::text::bigint[], (SELECT array_agg(v * 1000000) FROM unnest($3::text::bigint[]) v), 1, %d, %d, true, false, NULL) WHERE request >= 0",
				b.options.Schema, q.(*handle).qid, from.place, from.due)
			rows, err := tx.Query(t.Context(), statement, pgx.QueryExecModeExec, test.most, test.bytes, test.vis)
			ok(t, err)
			var got []string
			var text string
			var deliveries int
			_, err = pgx.ForEachRow(rows, []any{&text, &deliveries}, func() error {
				got = append(got, text)
				return nil
			})
			ok(t, err)
			if strings.Join(got, " ") != test.want || deliveries != 1 {
				t.Errorf("got %q, delivered %d times; want %q, once", got, deliveries, test.want)
			}
			ok(t, tx.Rollback(t.Context()))
		})
	}
}

// TestShortWayFollowsPlacesNotNumbers (ORD-1, PG-2) takes a message of a transaction, which is numbered when it is sent and has its place when it is moved in.
func TestShortWayFollowsPlacesNotNumbers(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	lookOnce(t, q)
	tx := begin(t, b)
	_, err := q.Send(InTx(t.Context(), tx), outgoing("c"))
	ok(t, err)
	_, err = q.Send(t.Context(), outgoing("a", "b"))
	ok(t, err)
	ok(t, tx.Commit(t.Context()))
	proctest.Eventually(t, time.Minute, "the message of the transaction is moved in", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats.Ready == 3
	})
	marksOf(q).freeze()
	bringBack := hideRules(t, b)
	if text, _ := receiveBodies(t, q, 3); text != "abc" {
		t.Errorf("received %q, want abc", text)
	}
	bringBack()
}

// TestQueueCountedBeforeIsStillCounted sends to a queue that had a bound (CAP-1).
func TestQueueCountedBeforeIsStillCounted(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{MaxMessages: 10})
	ok(t, b.ConfigureQueue(t.Context(), "orders", driver.Config{MaxMessages: -1}))
	for range 2 {
		_, err := q.Send(t.Context(), outgoing("a"))
		ok(t, err)
	}
	if version := q.(*handle).settings.Load().version; q.(*handle).ruled.Load() != version {
		t.Errorf("the short way was refused with version %d, want %d", q.(*handle).ruled.Load(), version)
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Ready != 2 {
		t.Errorf("got %+v, %v; want 2 ready", stats, err)
	}
	_, got := receiveBodies(t, q, 2)
	ok(t, q.Ack(t.Context(), []driver.Receipt{got[0].Receipt, got[1].Receipt}))
}

// TestReceiptTwiceInOneCallAcksOnce acks out of order, with receipts of one message beside each other (ACK-1).
func TestReceiptTwiceInOneCallAcksOnce(t *testing.T) {
	t.Parallel()
	_, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("a", "b"))
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	wrong := got[0].Receipt
	wrong.Nonce++
	err = q.Ack(t.Context(), []driver.Receipt{wrong, got[1].Receipt, got[0].Receipt})
	var batch *driver.BatchError
	if !errors.As(err, &batch) || !isCode(batch.Errs[0], driver.ErrReceiptExpired) || batch.Errs[1] != nil || batch.Errs[2] != nil {
		t.Errorf("got %v, want only the first refused", err)
	}
}

// TestStatementsLostFromSessionsAreSentAgain takes kept statements from the sessions, as a pooler does (PG-1).
func TestStatementsLostFromSessionsAreSentAgain(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	if b.unnamed.Load() {
		t.Fatal("statements are not kept")
	}
	_, err := q.Send(t.Context(), outgoing("a"))
	ok(t, err)
	for end := time.Now().Add(time.Minute); !b.unnamed.Load() && time.Now().Before(end); {
		for _, conn := range b.pool.AcquireAllIdle(t.Context()) { // all but those that another goroutine uses just now
			_, err := conn.Exec(t.Context(), "DEALLOCATE ALL", pgx.QueryExecModeSimpleProtocol)
			ok(t, err)
			conn.Release()
		}
		_, err = q.Send(t.Context(), outgoing("b"))
		ok(t, err)
	}
	if !b.unnamed.Load() {
		t.Error("statements are kept in sessions that lose them")
	}
}
