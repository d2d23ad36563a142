package oapapi_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// TestConformanceOverLoopbackAndPostgreSQL runs the suite through frames on a server of
// its own, on the real clock.
func TestConformanceOverLoopbackAndPostgreSQL(t *testing.T) {
	volume.OnlyAtLength(t, "it takes minutes of real time")
	server := pgtest.Start(t, "fsync=off")
	pool := server.Pool(t)
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			postgres, err := pgbox.Open(t.Context(), pool, &pgbox.Options{Schema: pgtest.Schema(), Migrate: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = postgres.Close() })
			d := newDaemon(t, postgres, oapapi.Options{})
			return newRemote(t, d, remotebox.New([]string{d.listen(t)}, d.token, nil))
		},
		Tick: 300 * time.Millisecond,
	})
}
