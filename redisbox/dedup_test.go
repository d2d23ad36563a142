package redisbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// Rule 11: the table is full of live keys, not of ended ones.
func TestEndedDedupKeysDoNotFillTable(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{DedupMax: 2, DedupWindow: hold})
	sendOne(t, q, driver.Outgoing{Body: []byte("a"), DedupKey: "long"})
	if err := b.ConfigureQueue(t.Context(), "orders", driver.Config{DedupMax: 2, DedupWindow: tick}); err != nil {
		t.Fatal(err)
	}
	sendOne(t, q, driver.Outgoing{Body: []byte("b"), DedupKey: "short"})
	pause(2 * tick)
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("c"), DedupKey: "short"}}); err != nil {
		t.Errorf("a key that is free again: %v, retry after %v", err, driver.RetryAfter(err))
	}
	pause(2 * tick) // it has ended again
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("c"), DedupKey: "new"}}); err != nil {
		t.Errorf("a new key, of two one is live: %v, retry after %v", err, driver.RetryAfter(err))
	}
}

// The same over and over: a key with a long window does not make the table forget how
// to make room.
func TestLongWindowKeyDoesNotBlockTable(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{DedupMax: 2, DedupWindow: hold})
	sendOne(t, q, driver.Outgoing{Body: []byte("a"), DedupKey: "long"})
	if err := b.ConfigureQueue(t.Context(), "orders", driver.Config{DedupMax: 2, DedupWindow: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	const rounds = 1200 // more than one call scans
	for i := range rounds {
		sendOne(t, q, driver.Outgoing{Body: []byte("b"), DedupKey: fmt.Sprint("short", i)})
	}
	if n, err := b.server.Client.Do(t.Context(),
		b.server.Client.B().Llen().Key(keyOf(q, "windows")).Build()).AsInt64(); err != nil || n > 10 {
		t.Errorf("for 2 keys it remembers %d windows, error %v", n, err)
	}
}
