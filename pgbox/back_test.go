package pgbox

import (
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
)

// TestReturnsUnderHeldTransactionCostClaimsFewPages (PG-3) lets messages go by while another session holds a transaction open, of which each fifth is nacked, released, delayed or
// loses its lease, and compares the pages that claims read with those of a queue that is new, in the same tables: of a message that was sent, and of one that came back to its place.
// Queues with bounds are those of a daemon, and transactions of callers ack some of their messages.
func TestReturnsUnderHeldTransactionCostClaimsFewPages(t *testing.T) {
	t.Parallel()
	const rounds, each = 100, 20
	b, _ := txQueue(t, driver.Config{})
	bounds := driver.Config{
		MaxMessages: 1 << 20, MaxBytes: 1 << 30, MaxInFlight: 1000, MaxDead: 1 << 20, MaxDeliveries: 20, DedupWindow: time.Hour,
		RetainReady: driver.Retention{Age: 7 * 24 * time.Hour}, RetainDead: driver.Retention{Age: 14 * 24 * time.Hour},
	}
	for name, c := range map[string]struct {
		config driver.Config
		levels int
		inTx   bool
	}{
		"plain": {levels: 1}, "priorities": {levels: 10}, "bounds": {config: bounds, levels: 1, inTx: true}, "bounds and priorities": {config: bounds, levels: 10, inTx: true},
	} {
		t.Run(name, func(t *testing.T) {
			held := begin(t, b)
			_, err := held.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", pgx.QueryExecModeSimpleProtocol)
			ok(t, err)
			msgs := make([]driver.Outgoing, each)
			for i := range msgs {
				msgs[i] = driver.Outgoing{Body: []byte("x"), Priority: i % c.levels}
			}
			msgs[each-1].Delay = time.Millisecond
			used, unused := configured(t, b, c.config), configured(t, b, c.config)
			for range rounds {
				comeAndGo(t, used, msgs)
				if c.inTx {
					ackInTx(t, b, used)
				}
			}
			if c.config.RetainReady.Age > 0 {
				time.Sleep(1200 * time.Millisecond) // births of a second are in one range
			}
			comeAndGo(t, unused, msgs)
			claimsPages(t, b, unused, c.levels/2)
			freshAfter, returnedAfter := claimsPages(t, b, used, c.levels/2)
			fresh, returned := claimsPages(t, b, unused, c.levels/2)
			t.Logf("pages of a claim: %d in a new queue, %d after; of a message that came back: %d, %d", fresh, freshAfter, returned, returnedAfter)
			if most := 13 * fresh / 10; freshAfter > most {
				t.Errorf("with %d messages gone by, a claim read %d pages, and %d in a new queue; want at most %d", rounds*each, freshAfter, fresh, most)
			}
			if most := 13 * returned / 10; returnedAfter > most {
				t.Errorf("with %d messages gone by, a claim of a message that came back read %d pages, and %d in a new queue; want at most %d", rounds*each, returnedAfter, returned, most)
			}
		})
	}
}

// ackInTx sends messages, and acks them in a transaction of the caller.
func ackInTx(t *testing.T, b *Backend, q driver.Queue) {
	t.Helper()
	_, err := q.Send(t.Context(), outgoing("a", "b", "c", "d"))
	ok(t, err)
	_, got := receiveBodies(t, q, 4)
	var receipts []driver.Receipt
	for _, d := range got {
		receipts = append(receipts, d.Receipt)
	}
	tx := begin(t, b)
	ok(t, q.Ack(InTx(t.Context(), tx), receipts))
	ok(t, tx.Commit(t.Context()))
	collect(t, q)
}

// comeAndGo sends messages and receives them; four come back in different ways before all are settled.
func comeAndGo(t *testing.T, q driver.Queue, msgs []driver.Outgoing) {
	t.Helper()
	_, err := q.Send(t.Context(), msgs)
	ok(t, err)
	_, got := receiveBodies(t, q, len(msgs)-1)
	_, last := receiveBodies(t, q, 1) // delayed
	got = append(got, last...)
	ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: got[5].Receipt}, {Receipt: got[9].Receipt, Mode: driver.NackRelease}, {Receipt: got[0].Receipt, Delay: time.Millisecond}}))
	_, err = q.Extend(t.Context(), []driver.Extension{{Receipt: got[2].Receipt, Visibility: time.Millisecond}})
	ok(t, err)
	_, again := receiveBodies(t, q, 4)
	var receipts []driver.Receipt
	for i, d := range append(got, again...) {
		if i != 0 && i != 2 && i != 5 && i != 9 {
			receipts = append(receipts, d.Receipt)
		}
	}
	ok(t, q.Ack(t.Context(), receipts))
}

// claimsPages returns how many pages a claim of a message reads that was just sent, and of one that was released, behind the marks of a full look.
func claimsPages(t *testing.T, b *Backend, q driver.Queue, priority int) (fresh, returned int) {
	t.Helper()
	lookOnce(t, q)
	conn, err := b.pool.Acquire(t.Context())
	ok(t, err)
	defer conn.Release()
	fresh, returned = math.MaxInt, math.MaxInt
	for range 10 { // the first calls of a session read the catalogue too, and so do those after other tests have changed it
		_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x"), Priority: priority}})
		ok(t, err)
		fresh = min(fresh, claimPages(t, conn.Conn(), b, q))
		receipt := taken(t, q, priority)
		ok(t, q.Ack(t.Context(), []driver.Receipt{taken(t, q, priority)}))
		ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: receipt, Mode: driver.NackRelease}}))
		returned = min(returned, claimPages(t, conn.Conn(), b, q))
	}
	return fresh, returned
}
