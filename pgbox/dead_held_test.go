package pgbox

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
)

// TestDeadLettersUnderHeldTransactionCostFewPages (PG-3) lets messages die and discards them while another session holds a transaction open, and compares the pages that a claim and a
// death read with those of a queue that is new, in the same tables.
func TestDeadLettersUnderHeldTransactionCostFewPages(t *testing.T) {
	t.Parallel()
	const rounds, each = 100, 20
	b, _ := txQueue(t, driver.Config{})
	held := begin(t, b)
	_, err := held.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	retention := driver.Retention{Age: 14 * 24 * time.Hour}
	for name, config := range map[string]driver.Config{
		"plain":     {},
		"retention": {MaxDead: 1 << 20, MaxMessages: 1 << 20, RetainDead: retention},
		"count":     {RetainDead: driver.Retention{Count: 10}},
		"strict":    {StrictGroups: true, MaxDead: 1 << 20, RetainDead: retention},
	} {
		t.Run(name, func(t *testing.T) {
			used, unused := configured(t, b, config), configured(t, b, config)
			for range rounds {
				dieAndGo(t, used, each)
			}
			dieAndGo(t, unused, each)
			_, _ = deathPages(t, b, unused)
			claimAfter, deathAfter := deathPages(t, b, used)
			claim, death := deathPages(t, b, unused)
			t.Logf("pages of a claim: %d in a new queue, %d after; of a death: %d, %d", claim, claimAfter, death, deathAfter)
			if claimAfter > 13*claim/10 || deathAfter > 13*death/10 {
				t.Errorf("with %d dead letters gone by, a claim read %d pages, and %d in a new queue; a death %d, and %d; want at most 1.3 times as many",
					rounds*each, claimAfter, claim, deathAfter, death)
			}
		})
	}
}

// dieAndGo sends messages of a group, makes dead letters of them and discards those.
func dieAndGo(t *testing.T, q driver.Queue, n int) {
	t.Helper()
	msgs := make([]driver.Outgoing, n)
	for i := range msgs {
		msgs[i] = driver.Outgoing{Body: []byte("x"), Group: "g"}
	}
	_, err := q.Send(t.Context(), msgs)
	ok(t, err)
	_, got := receiveBodies(t, q, n)
	var dead []driver.DeadLetterRequest
	var ids []string
	for _, d := range got {
		dead, ids = append(dead, driver.DeadLetterRequest{Receipt: d.Receipt, Reason: driver.ReasonFatal}), append(ids, d.ID)
	}
	ok(t, q.DeadLetter(t.Context(), dead))
	_, err = q.Discard(t.Context(), ids)
	ok(t, err)
}

// deathPages returns how many pages a claim reads, and how many the death of its message, behind the marks of a full look.
func deathPages(t *testing.T, b *Backend, q driver.Queue) (claim, death int) {
	t.Helper()
	lookOnce(t, q)
	conn, err := b.pool.Acquire(t.Context())
	ok(t, err)
	defer conn.Release()
	claim, death = math.MaxInt, math.MaxInt
	for range 10 { // the first calls of a session read the catalogue too, and so do those after other tests have changed it
		_, err := q.Send(t.Context(), outgoing("x"))
		ok(t, err)
		claim = min(claim, claimPages(t, conn.Conn(), b, q))
		qid, from := q.(*handle).qid, marksOf(q).forReceive()
		var seq, nonce int64
		var id string
		ok(t, conn.QueryRow(t.Context(), b.sql("SELECT seq, nonce, id::text FROM mailbox.message WHERE qid = $1 AND state = 'f'"), qid).Scan(&seq, &nonce, &id))
		death = min(death, callPages(t, conn.Conn(), 1, fmt.Sprintf("SELECT * FROM %s.settle(%d, 'k', '{0}', '{%d}', '{%d}', '{%s}', '{0}', NULL, NULL, '{fatal}', false, %d, %d)",
			b.options.Schema, qid, seq, nonce, id, from.place, from.due)))
	}
	_, err = q.PurgeDead(t.Context())
	ok(t, err)
	return claim, death
}
