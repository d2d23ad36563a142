package oapapi_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/replytest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// onPostgres is a daemon on a schema of a server.
type onPostgres struct {
	*remote
	pool   *pgxpool.Pool
	schema string
	ring   *keyring.Ring
}

func startOnPostgres(t testing.TB, pool *pgxpool.Pool, schema string, ring *keyring.Ring) *onPostgres {
	t.Helper()
	postgres, err := pgbox.Open(t.Context(), pool, &pgbox.Options{Schema: schema, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = postgres.Close() })
	d := newDaemonWith(t, postgres, oapapi.Options{}, ring, mint(t, ring))
	return &onPostgres{newRemote(t, d, remotebox.New([]string{d.listen(t)}, d.token, nil)), pool, schema, ring}
}

// TestConformanceOverLoopbackAndPostgreSQL runs the suite through frames on a server of
// its own, on the real clock.
func TestConformanceOverLoopbackAndPostgreSQL(t *testing.T) {
	volume.OnlyAtLength(t, "it takes minutes of real time")
	server := pgtest.Start(t, "fsync=off")
	pool := server.Pool(t)
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			return startOnPostgres(t, pool, pgtest.Schema(), keyring.New(keyring.NewKey()))
		},
		Restart: func(t testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
			before := old.(*onPostgres)
			if err := before.Close(); err != nil {
				t.Error(err)
			}
			return startOnPostgres(t, before.pool, before.schema, before.ring)
		},
		Tick: 300 * time.Millisecond,
	})
}

// TestReplyConformanceOnPostgreSQL runs the suite of reply stores through frames.
func TestReplyConformanceOnPostgreSQL(t *testing.T) {
	pool := pgtest.Start(t, "fsync=off").Pool(t)
	drivertest.RunReplyStore(t, drivertest.ReplyStore{
		Open: func(t testing.TB) driver.ReplyStore {
			replytest.InPart(t)
			postgres, err := pgbox.Open(t.Context(), pool, &pgbox.Options{Schema: pgtest.Schema(), Migrate: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = postgres.Close() })
			return newListening(t, newAsking(t, postgres)).Replies()
		},
		Tick: 300 * time.Millisecond,
	})
}
