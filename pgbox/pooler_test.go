package pgbox

import (
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

// TestKeepsItsPromisesBehindPgbouncer runs random programs and concurrent load through pgbouncer in
// transaction mode, where each transaction may be in another session; with full volume the whole
// suite.
func TestKeepsItsPromisesBehindPgbouncer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	behind := setup{connect: server.Pooler(t).Pool, kill: restarted(server), pollOnly: true, durability: driver.DurabilityProcess}
	behind.keepsItsPromises(t)
}

func TestMigrationsBehindPgbouncerRunAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Start(t, "fsync=off").Pooler(t).Pool(t)
	var migrating sync.WaitGroup
	for range 12 {
		migrating.Go(func() {
			if err := Migrate(t.Context(), pool, pgtest.Schema()); err != nil {
				t.Error(err)
			}
		})
	}
	migrating.Wait()
}
