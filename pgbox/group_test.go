package pgbox

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// TestClaimsOfGroupsUnderHeldTransactionReadFewPages (PG-3) lets messages of groups go by while another session holds a transaction open, and compares the
// pages that a claim and an ack read with those of before: while groups run empty in each round, and while each keeps some messages.
func TestClaimsOfGroupsUnderHeldTransactionReadFewPages(t *testing.T) {
	t.Parallel()
	const rounds, groups = 50, 20
	b, _ := txQueue(t, driver.Config{})
	for name, config := range map[string]driver.Config{
		"strict":          {StrictGroups: true},
		"fair":            {FairGroups: true},
		"strict, limited": {StrictGroups: true, GroupLimits: "in-flight=100,rate=1000000"},
		"fair, limited":   {FairGroups: true, GroupLimits: "in-flight=100,rate=1000000"},
	} {
		for _, left := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, %d left", name, left), func(t *testing.T) {
				queue := pgtest.Schema()
				ok(t, b.ConfigureQueue(t.Context(), queue, config))
				q, err := b.OpenQueue(t.Context(), queue)
				ok(t, err)
				round := make([]driver.Outgoing, groups)
				for i := range round {
					round[i] = driver.Outgoing{Body: []byte("x"), Group: fmt.Sprint("g", i)}
				}
				for range left {
					_, err := q.Send(t.Context(), round)
					ok(t, err)
				}
				claimed, acked := groupPages(t, b, q)
				held := begin(t, b)
				_, err = held.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", pgx.QueryExecModeSimpleProtocol)
				ok(t, err)
				for range rounds {
					_, err := q.Send(t.Context(), round)
					ok(t, err)
					_, got := receiveBodies(t, q, groups)
					receipts := make([]driver.Receipt, len(got))
					for i, d := range got {
						receipts[i] = d.Receipt
					}
					ok(t, q.Ack(t.Context(), receipts))
				}
				marksOf(q).freeze()
				claimedAfter, ackedAfter := groupPages(t, b, q)
				t.Logf("pages of a claim: %d before, %d after; of an ack: %d, %d", claimed, claimedAfter, acked, ackedAfter)
				if claimedAfter > 3*claimed || ackedAfter > 3*acked {
					t.Errorf("with %d messages gone by, a claim read %d pages, and %d before; an ack %d, and %d before; want at most three times as many",
						rounds*groups, claimedAfter, claimed, ackedAfter, acked)
				}
			})
		}
	}
}

// groupPages returns how many pages a claim of one message and its ack read, behind the marks of this process.
func groupPages(t *testing.T, b *Backend, q driver.Queue) (claimed, acked int) {
	t.Helper()
	conn, err := b.pool.Acquire(t.Context())
	ok(t, err)
	defer conn.Release()
	qid := q.(*handle).qid
	claimed, acked = math.MaxInt, math.MaxInt
	for range 5 { // the first calls of a session read the catalogue too, and so do those after other tests have changed it
		_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x"), Group: "g7"}})
		ok(t, err)
		from := marksOf(q).forReceive()
		claimed = min(claimed, callPages(t, conn.Conn(), 2, fmt.Sprintf("SELECT * FROM %s.receive(%d, 0, '{1}', '{0}', '{%d}', 1, %d, %d, false, false, NULL)",
			b.options.Schema, qid, hold.Microseconds(), from.place, from.due)))
		var seq, nonce int64
		var id string
		ok(t, conn.QueryRow(t.Context(), b.sql("SELECT seq, nonce, id::text FROM mailbox.message WHERE qid = $1 AND state = 'f'"), qid).Scan(&seq, &nonce, &id))
		acked = min(acked, callPages(t, conn.Conn(), 1, fmt.Sprintf("SELECT * FROM %s.settle(%d, 'a', '{0}', '{%d}', '{%d}', '{%s}', NULL, NULL, NULL, NULL, false, %d, %d)",
			b.options.Schema, qid, seq, nonce, id, from.place, from.due)))
	}
	return claimed, acked
}

// TestMessagesOfGroupsThatReturnAreFound lets a message of a group wait at a place that was taken long ago, behind the marks of its group and of the turns of its queue, and expects
// another process to find it.
func TestMessagesOfGroupsThatReturnAreFound(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]driver.Config{"strict": {StrictGroups: true}, "fair": {FairGroups: true}} {
		for way, returns := range map[string]func(t *testing.T, q driver.Queue, d driver.Delivery){
			"released": func(t *testing.T, q driver.Queue, d driver.Delivery) {
				ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt, Mode: driver.NackRelease}}))
			},
			"nacked": func(t *testing.T, q driver.Queue, d driver.Delivery) {
				ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}}))
			},
			"lease ended": func(t *testing.T, q driver.Queue, d driver.Delivery) {
				_, err := q.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt, Visibility: time.Millisecond}})
				ok(t, err)
			},
			"due": func(t *testing.T, q driver.Queue, d driver.Delivery) {
				sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("late"), Group: "other", Delay: time.Hour}})
				ok(t, err)
				ok(t, q.Ack(t.Context(), []driver.Receipt{d.Receipt}))
				sendTo(t, q, "third", "x")
				ok(t, q.Ack(t.Context(), []driver.Receipt{wantBodies(t, q, "x")[0].Receipt}))
				_, err = q.Edit(t.Context(), sent[0].ID, driver.Edit{DeliverAt: time.Now().Add(-time.Second)})
				ok(t, err)
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				b, one := txQueue(t, config)
				other, err := open(t, b.pool, &Options{Schema: b.options.Schema}).OpenQueue(t.Context(), "orders")
				ok(t, err)
				wantBodies(t, other, "")
				sendTo(t, one, "g", "late")
				late := wantBodies(t, one, "late")[0]
				for range 3 {
					sendTo(t, one, "other", "x")
					ok(t, one.Ack(t.Context(), []driver.Receipt{wantBodies(t, one, "x")[0].Receipt}))
				}
				marksOf(other).freeze()
				returns(t, one, late)
				if text, _ := receiveBodies(t, other, 1); text != "late" {
					t.Errorf("received %q, want late", text)
				}
			})
		}
	}
}

// TestIdleGroupsAreForgotten: the row of a group without messages stays for a while, and its bucket until it is full.
func TestIdleGroupsAreForgotten(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{FairGroups: true, GroupLimits: "slow: rate=0.001,burst=2"})
	for _, group := range []string{"g", "slow"} {
		sendTo(t, q, group, group)
		ok(t, q.Ack(t.Context(), []driver.Receipt{wantBodies(t, q, group)[0].Receipt}))
	}
	kept := func(want string) {
		t.Helper()
		wantBodies(t, q, "") // lets time pass
		var names string
		ok(t, b.pool.QueryRow(t.Context(), b.sql("SELECT coalesce(string_agg(convert_from(name, 'UTF8'), ' ' ORDER BY name), '') FROM mailbox.strict_group")).Scan(&names))
		if names != want {
			t.Errorf("the groups %q are kept, want %q", names, want)
		}
	}
	kept("g slow")
	for range 2 {
		_, err := b.pool.Exec(t.Context(), b.sql("SELECT setval('mailbox.place', nextval('mailbox.place') + 200000)"))
		ok(t, err)
		kept("slow")
	}
	sendTo(t, q, "slow", "a", "b")
	wantBodies(t, q, "a")
}

// TestPriorityFromEarlierVersionKeepsGroups (FLOW-1, FAIR-1) edits messages of a queue with groups as a process does that was told of none of its settings.
func TestPriorityFromEarlierVersionKeepsGroups(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]driver.Config{"strict": {StrictGroups: true}, "fair": {FairGroups: true}} {
		t.Run(name, func(t *testing.T) {
			b, q := txQueue(t, config)
			earlier, err := open(t, b.pool, &Options{Schema: b.options.Schema}).OpenQueue(t.Context(), "orders")
			ok(t, err)
			known := &earlier.(*handle).settings
			known.Store(b.newSettings(driver.Config{}, known.Load().version))
			sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a"), Group: "g"}, {Body: []byte("b"), Group: "h"}, {Body: []byte("c")}})
			ok(t, err)
			for i, priority := range []int{9, 0, 5} {
				_, err := earlier.Edit(t.Context(), sent[i].ID, driver.Edit{Prioritize: true, Priority: priority})
				ok(t, err)
			}
			text, got := receiveBodies(t, q, 3)
			if text != "abc" || got[0].Group != "g" || got[1].Group != "h" {
				t.Errorf("received %q, %+v; want a, b and c in their groups", text, got)
			}
		})
	}
}
