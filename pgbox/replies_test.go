package pgbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

func TestPostgreSQLReplyStoreConformance(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	for name, options := range map[string]Options{"notices": {}, "polling": {PollOnly: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beside, another := schemaPool{connect: func() *pgxpool.Pool { return server.Pool(t) }}, server.Pool(t)
			suite := drivertest.ReplyStore{
				Open: func(t testing.TB) driver.ReplyStore {
					t.(*testing.T).Parallel() // it mostly waits
					taken, o := beside.take(t), options
					o.Schema = taken.schema
					return open(t, taken.pool, &o).Replies(0)
				},
				Another: func(t testing.TB, store driver.ReplyStore) driver.ReplyStore {
					o := options
					o.Schema = store.(*replyStore).backend.options.Schema
					return open(t, another, &o).Replies(0)
				},
				Tick: tick,
			}
			if options.PollOnly {
				suite.Late = 2 * pollInterval
			}
			drivertest.RunReplyStore(t, suite)
		})
	}
}

func TestReplyStoreIsBounded(t *testing.T) {
	t.Parallel()
	r := open(t, pgtest.Shared(t).Pool(t), &Options{Schema: pgtest.Schema()}).Replies(10)
	for n := range 10 {
		ok(t, r.Create(t.Context(), fmt.Sprint("slot-", n), time.Hour))
	}
	if err := r.Create(t.Context(), "more", time.Hour); !isCode(err, driver.ErrFull) {
		t.Errorf("got %v, want %v", err, driver.ErrFull)
	}
	ok(t, r.Delete(t.Context(), "slot-3"))
	ok(t, r.Create(t.Context(), "more", time.Hour))
}

// TestSlotsAreListedPageByPage (RPL-5): slots that expire at the same time are on two pages.
func TestSlotsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	b := open(t, pgtest.Shared(t).Pool(t), &Options{Schema: pgtest.Schema()})
	const n = 2*slotsListed + 500
	_, err := b.pool.Exec(t.Context(), b.sql("INSERT INTO mailbox.slot (id, created, expires) SELECT 'slot ' || n, n, 9000000000000000 - n / 300 FROM generate_series(1, $1) n"), n)
	ok(t, err)
	seen := make(map[string]bool)
	var last time.Time
	for slot, err := range b.Replies(0).(driver.SlotLister).Slots(t.Context()) {
		ok(t, err)
		if seen[slot.ID] || slot.ExpiresAt.Before(last) {
			t.Fatalf("%+v is listed twice, or behind one that expires at %s", slot, last)
		}
		seen[slot.ID], last = true, slot.ExpiresAt
	}
	if len(seen) != n {
		t.Errorf("%d of %d slots are listed", len(seen), n)
	}
}
