package redisbox

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// TestForeignKeyInQueueIsConflict on a real server, where the error comes out of a
// script.
func TestForeignKeyInQueueIsConflict(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: prefix})
	meta := shardKeys(prefix, "orders", 0)[0]
	if err := b.client.Do(t.Context(), b.client.B().Set().Key(meta).Value("mine").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	_, err := b.OpenQueue(t.Context(), "orders")
	wantCode(t, err, driver.ErrConflict)
}
