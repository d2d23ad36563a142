package pgbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// TestGroupsAtTheirLimitCostNoPages counts the pages that a claim reads beside groups that are at their
// limit. The server is its own, so that no transaction of another test keeps rows that are gone.
func TestGroupsAtTheirLimitCostNoPages(t *testing.T) {
	t.Parallel()
	const groups, most = 1500, 250
	pool := pgtest.Start(t, "fsync=off", "autovacuum=off").Pool(t)
	for name, config := range map[string]driver.Config{
		"in flight, fair":   {FairGroups: true, GroupLimits: "in-flight=1"},
		"in flight, strict": {StrictGroups: true, GroupLimits: "in-flight=1"},
		"rate, fair":        {FairGroups: true, GroupLimits: "rate=0.0001,burst=1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, pool, &Options{Schema: pgtest.Schema()})
			ok(t, b.ConfigureQueue(t.Context(), "orders", config))
			q, err := b.OpenQueue(t.Context(), "orders")
			ok(t, err)
			var msgs []driver.Outgoing
			for i := range groups {
				for range 2 {
					msgs = append(msgs, driver.Outgoing{Body: []byte("x"), Group: fmt.Sprint("g", i)})
				}
			}
			for len(msgs) > 0 {
				_, err := q.Send(t.Context(), msgs[:200])
				ok(t, err)
				msgs = msgs[200:]
			}
			for n := 0; n < groups; {
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: hold})
				ok(t, err)
				if n += len(got); len(got) == 0 {
					t.Fatalf("%d of %d groups were delivered", n, groups)
				}
			}
			conn, err := b.pool.Acquire(t.Context())
			ok(t, err)
			defer conn.Release()
			for _, table := range []string{"strict_group", "message"} {
				_, err := conn.Exec(t.Context(), b.sql("VACUUM mailbox."+table))
				ok(t, err)
			}
			pages := 0
			for i := range 3 { // the first calls of a session read the catalogue too
				_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x"), Group: fmt.Sprint("other", i)}})
				ok(t, err)
				pages = claimPages(t, conn.Conn(), b, q)
			}
			if pages > most {
				t.Errorf("a claim read %d pages beside %d groups at their limit, want at most %d", pages, groups, most)
			}
		})
	}
}

// sendTo sends a message of a group for each body.
func sendTo(t *testing.T, q driver.Queue, group string, bodies ...string) {
	t.Helper()
	msgs := outgoing(bodies...)
	for i := range msgs {
		msgs[i].Group = group
	}
	_, err := q.Send(t.Context(), msgs)
	ok(t, err)
}

// wantBodies receives without waiting.
func wantBodies(t *testing.T, q driver.Queue, want string) []driver.Delivery {
	t.Helper()
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: hold})
	ok(t, err)
	text := ""
	for _, d := range got {
		text += string(d.Body)
	}
	if text != want {
		t.Fatalf("received %q, want %q", text, want)
	}
	return got
}

// TestProcessesShareLimits: what one process delivers, throttles or acks counts in another.
func TestProcessesShareLimits(t *testing.T) {
	t.Parallel()
	b, one := txQueue(t, driver.Config{FairGroups: true, GroupLimits: "in-flight=1; slow: rate=0.001,burst=2"})
	other, err := open(t, b.pool, &Options{Schema: b.options.Schema}).OpenQueue(t.Context(), "orders")
	ok(t, err)
	sendTo(t, one, "g", "a", "b")
	sendTo(t, one, "slow", "1", "2", "3")
	held := wantBodies(t, one, "a12")
	wantBodies(t, other, "")
	ok(t, other.Ack(t.Context(), []driver.Receipt{held[0].Receipt, held[1].Receipt}))
	ok(t, other.Throttle(t.Context(), "g", hold))
	wantBodies(t, one, "")
	if stats, err := one.Stats(t.Context()); err != nil || stats.Throttled != 2 {
		t.Errorf("%d messages are throttled, %v; want 2", stats.Throttled, err)
	}
	ok(t, one.Throttle(t.Context(), "g", 0))
	wantBodies(t, other, "b")
}

// TestWaitingReceiveOfOtherProcessWakesAtRefill: a receive that waits knows when a bucket that another
// process has emptied has a token.
func TestWaitingReceiveOfOtherProcessWakesAtRefill(t *testing.T) {
	t.Parallel()
	b, one := txQueue(t, driver.Config{StrictGroups: true, GroupLimits: "rate=2,burst=1"})
	other, err := open(t, b.pool, &Options{Schema: b.options.Schema}).OpenQueue(t.Context(), "orders")
	ok(t, err)
	sendTo(t, one, "g", "a", "b")
	ok(t, one.Ack(t.Context(), []driver.Receipt{wantBodies(t, one, "a")[0].Receipt}))
	if text, _ := receiveBodies(t, other, 1); text != "b" {
		t.Errorf("received %q, want b", text)
	}
}

// TestAckInTransactionMakesRoomInGroup: a message that is acked in a transaction is in flight until that has
// committed.
func TestAckInTransactionMakesRoomInGroup(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{FairGroups: true, GroupLimits: "in-flight=1"})
	sendTo(t, q, "g", "a", "b")
	held := wantBodies(t, q, "a")
	tx := begin(t, b)
	ok(t, q.Ack(InTx(t.Context(), tx), []driver.Receipt{held[0].Receipt}))
	wantBodies(t, q, "")
	ok(t, tx.Commit(t.Context()))
	if text, _ := receiveBodies(t, q, 1); text != "b" {
		t.Errorf("received %q, want b", text)
	}
}

// TestVersionBeforeWorksWithFairGroups makes the calls of a process that knows migration 10 only.
func TestVersionBeforeWorksWithFairGroups(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{FairGroups: true, GroupLimits: "in-flight=1"})
	sendTo(t, q, "g", "a", "b")
	held := wantBodies(t, q, "a")[0]
	qid := q.(*handle).qid
	var position, rows int
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT mailbox.ack($1, '{0}', $2, $3, $4)"), qid, []int64{seqOf(held.Receipt)}, []int64{int64(held.Receipt.Nonce)},
		[][16]byte{ulid.MustParse(held.ID)}).Scan(&position))
	wantBodies(t, q, "b")
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT count(*) FROM mailbox.usage($1, false, false, 0, 0, NULL)"), qid).Scan(&rows))
	var done bool
	ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT mailbox.configure('before', 0, 'x', '{}', true, false, '', '{1,0,0,0,0,0,0,0,0,0,0,0,0,0,0}')")).Scan(&done))
	if position != 1 || rows != 1 || !done {
		t.Errorf("acked position %d, measured %d shards, configured %v; want 1, 1 and true", position, rows, done)
	}
}

// TestMigrationCountsMessagesInFlightOfGroups: limits that are set after the migration count what was in flight
// before.
func TestMigrationCountsMessagesInFlightOfGroups(t *testing.T) {
	t.Parallel()
	pool, schema := pgtest.Shared(t).Pool(t), pgtest.Schema()
	migrateTo(t, pool, schema, 10)
	const id = "00000000-0000-0000-0000-00000000000"
	_, err := pool.Exec(t.Context(), strings.ReplaceAll("SELECT mailbox.configure('orders', 0, 'first', '{\"StrictGroups\":true}', true, false, '', '{1,0,0,0,0,0,0,0,0,0,0,0,0}'); "+
		"SELECT mailbox.send((SELECT qid FROM mailbox.queue), '{0,0,0}', '{"+id+"1,"+id+"2,"+id+"3}', '{a,b,c}', '{g,g,g}', '{NULL,NULL,NULL}', '{0,0,0}', NULL, NULL, NULL, false, false); "+
		"SELECT * FROM mailbox.receive((SELECT qid FROM mailbox.queue), 0, '{2}', '{0}', '{3600000000}', 1, 0, 0, false, false, NULL)", "mailbox.", schema+"."), pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	b := open(t, pool, &Options{Schema: schema})
	ok(t, b.ConfigureQueue(t.Context(), "orders", driver.Config{StrictGroups: true, GroupLimits: "in-flight=2"}))
	q, err := b.OpenQueue(t.Context(), "orders")
	ok(t, err)
	if stats, err := q.Stats(t.Context()); err != nil || stats.Ready != 1 || stats.InFlight != 2 || stats.Throttled != 1 {
		t.Errorf("got %+v, %v; want 2 in flight, and 1 ready that is throttled", stats, err)
	}
}

// TestUndoTakesBackDeliveryWhoseLeaseHasEnded: the message of a receiver that left was not delivered, also if its
// lease ended before it was given back.
func TestUndoTakesBackDeliveryWhoseLeaseHasEnded(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]driver.Config{
		"plain": {}, "strict": {StrictGroups: true}, "limited": {FairGroups: true, GroupLimits: "rate=0.001,burst=2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, q := txQueue(t, config)
			sendTo(t, q, "g", "a")
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Microsecond})
			ok(t, err)
			for stats := (driver.Stats{}); stats.Ready == 0; {
				stats, err = q.Stats(t.Context())
				ok(t, err)
			}
			for range 2 { // the second changes nothing
				q.(*handle).undo(t.Context(), got)
			}
			for i := range 2 {
				again, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Microsecond, Wait: time.Minute})
				ok(t, err)
				if len(again) != 1 || again[0].Deliveries != i+1 {
					t.Fatalf("got %+v, want delivery %d", again, i+1)
				}
			}
		})
	}
}
