package pgbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// marksOf returns what this process knows of the only shard of a queue.
func marksOf(q driver.Queue) *marks { return &q.(*handle).shards[0].marks }

// lookOnce makes a receive of an empty queue look at everything, and keeps later ones from doing so: they find only what is behind the
// marks, or needs none.
func lookOnce(t *testing.T, q driver.Queue) {
	t.Helper()
	m := marksOf(q)
	m.doubt()
	if got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: hold}); err != nil || len(got) > 0 {
		t.Fatalf("received %d messages, %v; want none", len(got), err)
	}
	m.freeze()
}

// freeze makes the next calls begin at the marks, however long ago a call has looked at everything.
func (m *marks) freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nextReceive, m.nextOther = time.Now().Add(hold), time.Now().Add(hold)
}

// anotherQueue opens a queue of the same backend.
func anotherQueue(t *testing.T, b *Backend) driver.Queue { return configured(t, b, driver.Config{}) }

// configured opens another queue with a configuration.
func configured(t *testing.T, b *Backend, config driver.Config) driver.Queue {
	t.Helper()
	name := pgtest.Schema()
	ok(t, b.ConfigureQueue(t.Context(), name, config))
	q, err := b.OpenQueue(t.Context(), name)
	ok(t, err)
	return q
}

// openSend sends a message in a transaction that the caller commits. No process does that, but a slow commit looks like it.
func openSend(t *testing.T, b *Backend, q driver.Queue, body string, priority int) pgx.Tx {
	t.Helper()
	tx := begin(t, b)
	statement := strings.ReplaceAll("SELECT codes FROM mailbox.send_from($1, '{0}', ARRAY[$2::text::uuid], ARRAY[$3::bytea], '{NULL}', '{NULL}', '{0}', NULL, NULL, NULL, false, false, 0, 0, NULL, ARRAY[$4::int])", "mailbox.", b.options.Schema+".")
	var codes string
	ok(t, tx.QueryRow(t.Context(), statement, pgx.QueryExecModeExec, q.(*handle).qid, fmt.Sprintf("%x", [16]byte(ulid.Make())), []byte(body), priority).Scan(&codes))
	if codes != "" {
		t.Fatalf("send in a transaction: codes %q", codes)
	}
	return tx
}

// TestMessagesThatBecomeVisibleLateAreFound sets the marks of a process while a message is on its way to a lower place, or to one
// that was taken long ago, and expects a receive that begins at the marks to find it.
func TestMessagesThatBecomeVisibleLateAreFound(t *testing.T) {
	t.Parallel()
	b, _ := txQueue(t, driver.Config{})
	for name, late := range map[string]func(t *testing.T, b *Backend, q driver.Queue, priority int) (arrive func()){
		"open send": func(t *testing.T, b *Backend, q driver.Queue, priority int) func() {
			tx := openSend(t, b, q, "late", priority)
			return func() { ok(t, tx.Commit(t.Context())) }
		},
		"caller's transaction": func(t *testing.T, b *Backend, q driver.Queue, priority int) func() {
			tx := begin(t, b)
			_, err := q.Send(InTx(t.Context(), tx), []driver.Outgoing{{Body: []byte("late"), Priority: priority}})
			ok(t, err)
			return func() { ok(t, tx.Commit(t.Context())) }
		},
		"delayed": func(t *testing.T, _ *Backend, q driver.Queue, priority int) func() {
			sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("late"), Priority: priority, Delay: time.Hour}})
			ok(t, err)
			return func() {
				_, err := q.Edit(t.Context(), sent[0].ID, driver.Edit{DeliverAt: time.Now().Add(-time.Second)})
				ok(t, err)
			}
		},
		"delayed, and another priority": func(t *testing.T, _ *Backend, q driver.Queue, priority int) func() {
			sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("late"), Priority: 9 - priority, Delay: time.Hour}})
			ok(t, err)
			return func() {
				_, err := q.Edit(t.Context(), sent[0].ID, driver.Edit{Prioritize: true, Priority: priority})
				ok(t, err)
				_, err = q.Edit(t.Context(), sent[0].ID, driver.Edit{DeliverAt: time.Now().Add(-time.Second)})
				ok(t, err)
			}
		},
		"released": func(t *testing.T, _ *Backend, q driver.Queue, priority int) func() {
			receipt := taken(t, q, priority)
			return func() { ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: receipt, Mode: driver.NackRelease}})) }
		},
		"released with a delay": func(t *testing.T, _ *Backend, q driver.Queue, priority int) func() {
			receipt := taken(t, q, priority)
			return func() {
				ok(t, q.Nack(t.Context(), []driver.Nack{{Receipt: receipt, Mode: driver.NackRelease, Delay: time.Millisecond}}))
			}
		},
		"lease that ends": func(t *testing.T, _ *Backend, q driver.Queue, priority int) func() {
			receipt := taken(t, q, priority)
			return func() {
				_, err := q.Extend(t.Context(), []driver.Extension{{Receipt: receipt, Visibility: time.Millisecond}})
				ok(t, err)
			}
		},
	} {
		for _, priority := range []int{0, 4} {
			t.Run(fmt.Sprintf("%s, priority %d", name, priority), func(t *testing.T) {
				t.Parallel()
				q := anotherQueue(t, b)
				goBy(t, q)
				arrive := late(t, b, q, priority)
				lookOnce(t, q)
				if name != "open send" { // others wait for it
					goBy(t, q)
				}
				arrive()
				if text, _ := receiveBodies(t, q, 1); text != "late" {
					t.Errorf("received %q, want late", text)
				}
			})
		}
	}
}

// taken sends a message and takes it.
func taken(t *testing.T, q driver.Queue, priority int) driver.Receipt {
	t.Helper()
	_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("late"), Priority: priority}})
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	return got[0].Receipt
}

// goBy sends a message of each priority, and settles it.
func goBy(t *testing.T, q driver.Queue) {
	t.Helper()
	var msgs []driver.Outgoing
	for priority := range 10 {
		msgs = append(msgs, driver.Outgoing{Body: []byte("x"), Priority: priority})
	}
	_, err := q.Send(t.Context(), msgs)
	ok(t, err)
	_, got := receiveBodies(t, q, len(msgs))
	var receipts []driver.Receipt
	for _, d := range got {
		receipts = append(receipts, d.Receipt)
	}
	ok(t, q.Ack(t.Context(), receipts))
}

// TestMarksHideNothingFromConcurrentReceivers sends messages of all priorities in calls, in slow commits and in transactions that end in another
// order than they began, while two processes receive. They look at everything at the start, and then only behind the marks
// that they found meanwhile. Every message has to come.
func TestMarksHideNothingFromConcurrentReceivers(t *testing.T) {
	t.Parallel()
	const senders, each, looks = 4, 30, 20
	b, q := txQueue(t, driver.Config{})
	b2 := open(t, pgtest.Shared(t).Pool(t), &Options{Schema: b.options.Schema})
	q2, err := b2.OpenQueue(t.Context(), "orders")
	ok(t, err)
	goBy(t, q)
	var work sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // long enough for any machine
	defer cancel()
	for s := range senders {
		work.Go(func() { sendMixed(t, b, q, s, each) })
	}
	var mu sync.Mutex // guards got
	got := make(map[string]bool)
	for _, q := range []driver.Queue{q, q2} {
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if marksOf(q).freeze(); i < looks {
					marksOf(q).doubt()
				}
				msgs, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1 + i%4, Visibility: hold, Wait: 50 * time.Millisecond})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				mu.Lock()
				for _, d := range msgs {
					got[string(d.Body)] = true
				}
				if len(got) == senders*each || t.Failed() {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if len(got) != senders*each {
		stats, err := q.Stats(t.Context())
		t.Errorf("received %d messages of %d; %+v, %v in the queue", len(got), senders*each, stats, err)
	}
}

// sendMixed sends messages one by one in different ways, some of which become visible late.
func sendMixed(t *testing.T, b *Backend, q driver.Queue, sender, n int) {
	var open []pgx.Tx
	for i := range n {
		body, priority := fmt.Sprint(sender, " ", i), rand.IntN(10)
		switch i % 3 {
		case 0:
			_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte(body), Priority: priority}})
			ok(t, err)
		case 1:
			tx := openSend(t, b, q, body, priority)
			_, err := tx.Exec(t.Context(), fmt.Sprintf("SELECT pg_sleep(%g)", rand.Float64()/200))
			ok(t, err)
			ok(t, tx.Commit(t.Context()))
		case 2:
			tx := begin(t, b)
			_, err := q.Send(InTx(t.Context(), tx), []driver.Outgoing{{Body: []byte(body), Priority: priority}})
			ok(t, err)
			if open = append(open, tx); len(open) == 2 { // the second one commits before the first
				ok(t, open[1].Commit(t.Context()))
				open = open[:1]
			}
		}
	}
	for _, tx := range open {
		ok(t, tx.Commit(t.Context()))
	}
}

// TestClaimsUnderHeldTransactionReadFewPages lets messages go by while another session holds a transaction open, and counts the pages that
// a claim reads behind the marks of a full look that found the queue empty.
func TestClaimsUnderHeldTransactionReadFewPages(t *testing.T) {
	t.Parallel()
	const rounds, most = 150, 150
	b, _ := txQueue(t, driver.Config{})
	for _, levels := range []int{1, 10} {
		t.Run(fmt.Sprintf("%d priorities", levels), func(t *testing.T) {
			q := anotherQueue(t, b)
			held := begin(t, b)
			_, err := held.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1", pgx.QueryExecModeSimpleProtocol)
			ok(t, err)
			msgs := make([]driver.Outgoing, 20)
			for i := range msgs {
				msgs[i] = driver.Outgoing{Body: []byte("x"), Priority: i % levels}
			}
			for range rounds {
				_, err := q.Send(t.Context(), msgs)
				ok(t, err)
				_, got := receiveBodies(t, q, len(msgs))
				receipts := make([]driver.Receipt, len(got))
				for i, d := range got {
					receipts[i] = d.Receipt
				}
				ok(t, q.Ack(t.Context(), receipts))
			}
			lookOnce(t, q)
			conn, err := b.pool.Acquire(t.Context())
			ok(t, err)
			defer conn.Release()
			// The first calls of a session read the catalogue too, and so do those after other tests have changed it.
			const tries = 5
			pages, acked, upstream := math.MaxInt, math.MaxInt, math.MaxInt
			for range tries {
				_, err := q.Send(t.Context(), msgs[levels/2:levels/2+1])
				ok(t, err)
				pages = min(pages, claimPages(t, conn.Conn(), b, q))
			}
			_, err = q.Send(t.Context(), msgs[:tries])
			ok(t, err)
			_, got := receiveBodies(t, q, tries)
			for _, d := range got {
				acked = min(acked, callPages(t, conn.Conn(), 1, fmt.Sprintf("SELECT * FROM %s.ack(%d, '{0}', '{%d}', '{%d}', '{%x}')",
					b.options.Schema, q.(*handle).qid, d.Receipt.Place, d.Receipt.Nonce, [16]byte(ulid.MustParse(d.ID)))))
				// Its own leases are not those of queues whose dead letters come here.
				upstream = min(upstream, callPages(t, conn.Conn(), 0, fmt.Sprintf("SELECT * FROM %s.upstream(%d)", b.options.Schema, q.(*handle).qid)))
			}
			if upstream > most {
				t.Errorf("a look for other queues read %d pages with %d messages gone by, want at most %d", upstream, rounds*len(msgs), most)
			}
			if acked > most {
				t.Errorf("an ack read %d pages with %d messages gone by, want at most %d", acked, rounds*len(msgs), most)
			}
			if pages > most {
				t.Errorf("a claim read %d pages with %d messages gone by, want at most %d", pages, rounds*len(msgs), most)
			}
		})
	}
}

// claimPages claims a message behind the marks of a process, and returns how many pages the call read.
func claimPages(t *testing.T, conn *pgx.Conn, b *Backend, q driver.Queue) int {
	t.Helper()
	from := marksOf(q).forReceive()
	function := "receive"
	if q.(*handle).isPlain() {
		function = "take"
	}
	return callPages(t, conn, 2, fmt.Sprintf("SELECT * FROM %[1]s."+function+"(%[2]d, 0, '{1,1}', '{0,0}', '{%[3]d,%[3]d}', 1, %[4]d, %[5]d, true, false, %[6]s)",
		b.options.Schema, q.(*handle).qid, hold.Microseconds(), from.place, from.due, levelsSQL(from.levels)))
}

// callPages makes a call that returns a number of rows, and returns how many pages it read.
func callPages(t *testing.T, conn *pgx.Conn, rows int, statement string) int {
	t.Helper()
	var text []byte
	ok(t, conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+statement, pgx.QueryExecModeSimpleProtocol).Scan(&text))
	var plan []struct {
		Plan struct {
			Rows int `json:"Actual Rows"`
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	ok(t, json.Unmarshal(text, &plan))
	if plan[0].Plan.Rows != rows {
		t.Fatalf("%s returned %d rows, want %d", statement, plan[0].Plan.Rows, rows)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

func levelsSQL(levels []int64) string {
	if levels == nil {
		return "NULL"
	}
	return "'{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(levels), " ", ","), "[]") + "}'"
}
