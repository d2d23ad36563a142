package pgbox

import (
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// TestSettlingWaitsForFirstMessageFirst: messages are locked in the order of their numbers, whatever the order of
// the call. An ack does so without a lock of the shard, and both could wait for each other.
func TestSettlingWaitsForFirstMessageFirst(t *testing.T) {
	t.Parallel()
	b, q := txQueue(t, driver.Config{})
	_, err := q.Send(t.Context(), outgoing("a", "b"))
	ok(t, err)
	_, got := receiveBodies(t, q, 2)
	slices.Reverse(got)
	ack := begin(t, b)
	_, err = ack.Exec(t.Context(), b.sql("SELECT FROM mailbox.message ORDER BY seq LIMIT 1 FOR UPDATE"))
	ok(t, err)
	nacked := make(chan error, 1)
	go func() {
		nacked <- q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}, {Receipt: got[1].Receipt}})
	}()
	for waits := false; !waits; {
		ok(t, b.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '.settle%'", b.options.Schema).Scan(&waits))
	}
	_, err = ack.Exec(t.Context(), b.sql("SELECT FROM mailbox.message ORDER BY seq DESC LIMIT 1 FOR UPDATE NOWAIT"))
	ok(t, err)
	ok(t, ack.Rollback(t.Context()))
	ok(t, <-nacked)
	if text, _ := receiveBodies(t, q, 2); text != "ba" { // in the order of the call
		t.Errorf("received %q, want ba", text)
	}
}
