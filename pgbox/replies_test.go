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
