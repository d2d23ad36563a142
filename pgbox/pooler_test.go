package pgbox

import (
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestKeepsItsPromisesBehindPgbouncer runs random programs and concurrent load through pgbouncer in
// transaction mode, where each transaction may be in another session; with full volume the whole
// suite.
func TestKeepsItsPromisesBehindPgbouncer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Start(t, "fsync=off").Pooler(t)
	behind := drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			return open(t, pool, &Options{Schema: pgtest.Schema(), PollOnly: true})
		},
		Tick: tick,
	}
	t.Run("random", func(t *testing.T) { drivertest.RunRandom(t, behind, 200) })
	t.Run("load", func(t *testing.T) { drivertest.RunConcurrent(t, behind, drivertest.Load{}) })
	if !volume.AtLength() {
		return
	}
	schema := pgtest.Schema() // another one for each case would take most of the time
	again := func(t testing.TB) driver.Opener { return open(t, pool, &Options{Schema: schema, PollOnly: true}) }
	behind.Open = func(t testing.TB) driver.Opener {
		empty(t, pool, schema)
		return again(t)
	}
	behind.Restart = func(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
		ok(t, old.(*Backend).Close())
		return again(t)
	}
	t.Run("suite", func(t *testing.T) { drivertest.Run(t, behind) })
}

func TestMigrationsBehindPgbouncerRunAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Start(t, "fsync=off").Pooler(t)
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
