package pgbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// connect returns a pool for an address, which is closed when the test ends.
func connect(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(address)
	ok(t, err)
	config.MaxConns = 16
	HeedWarnings(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	ok(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// expectDurability looks at the standbys until a queue has a durability, and returns what readiness
// says.
func expectDurability(t testing.TB, b *Backend, want driver.Durability) (problem string, lost bool) {
	t.Helper()
	for until := time.Now().Add(5 * time.Minute); ; {
		_ = b.protect(t.Context()) // a server that does not answer is a result too
		got := b.DefaultTraits().Durability
		if got == want {
			return b.Replication()
		}
		if time.Now().After(until) {
			problem, _ := b.Replication()
			t.Fatalf("durability %q, want %q; problem: %q", got, want, problem)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestTraitsFollowTheStandby(t *testing.T) {
	t.Parallel()
	pair, schema := pgtest.StartPair(t, true), pgtest.Schema()
	b := open(t, connect(t, pair.URL()), &Options{Schema: schema})
	if problem, lost := expectDurability(t, b, driver.DurabilityReplicated); problem != "" || lost {
		t.Errorf("with a standby: %q, lost %v", problem, lost)
	}
	_, err := b.pool.Exec(t.Context(), strings.ReplaceAll("CREATE ROLE shop LOGIN; GRANT USAGE ON SCHEMA mailbox TO shop; GRANT SELECT ON ALL TABLES IN SCHEMA mailbox TO shop", "mailbox", schema),
		pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	other, err := Open(t.Context(), connect(t, strings.ReplaceAll(pair.URL(), "user=mailbox", "user=shop")), &Options{Schema: schema})
	ok(t, err)
	defer func() { ok(t, other.Close()) }()
	if problem, _ := expectDurability(t, other, driver.DurabilityDisk); !strings.Contains(problem, "pg_monitor") {
		t.Errorf("without the rights of pg_monitor: %q", problem)
	}
	pair.Standby.Kill()
	if problem, lost := expectDurability(t, b, driver.DurabilityDisk); problem == "" || !lost {
		t.Errorf("without the standby: %q, lost %v", problem, lost)
	}
	ok(t, pair.Standby.Restart(t.Context()))
	if problem, lost := expectDurability(t, b, driver.DurabilityReplicated); problem != "" || lost {
		t.Errorf("with the standby again: %q, lost %v", problem, lost)
	}
}

// TestTransactionsThatDoNotWaitForTheStandbyAreRefused sends, acks and nacks in sessions whose commits wait for less than those of the backend.
func TestTransactionsThatDoNotWaitForTheStandbyAreRefused(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t, true)
	pool := connect(t, pair.URL())
	b := open(t, pool, &Options{Schema: pgtest.Schema()})
	expectDurability(t, b, driver.DurabilityReplicated)
	q, err := b.OpenQueue(t.Context(), "orders")
	ok(t, err)
	_, err = q.Send(t.Context(), outgoing("a"))
	ok(t, err)
	_, got := receiveBodies(t, q, 1)
	for commit, want := range map[string]driver.Code{
		"off": driver.ErrInvalid, "local": driver.ErrInvalid, "remote_write": driver.ErrInvalid, "on": "", "remote_apply": "",
	} {
		for op, do := range map[string]func(ctx context.Context) error{
			"send": func(ctx context.Context) error { _, err := q.Send(ctx, outgoing("b")); return err },
			"ack":  func(ctx context.Context) error { return q.Ack(ctx, []driver.Receipt{got[0].Receipt}) },
			"nack": func(ctx context.Context) error { return q.Nack(ctx, []driver.Nack{{Receipt: got[0].Receipt}}) },
		} {
			tx := begin(t, b)
			_, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = "+commit)
			ok(t, err)
			if err := do(InTx(t.Context(), tx)); want == "" && err != nil || want != "" && !isCode(err, want) {
				t.Errorf("%s with synchronous_commit %s: %v, want %q", op, commit, err, want)
			}
			ok(t, tx.Rollback(t.Context()))
		}
	}
}

// TestPoolThatHearsNoWarningsPromisesDisk opens backends on pools that would take a commit that was cancelled at the standby for a success.
func TestPoolThatHearsNoWarningsPromisesDisk(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t, true)
	for _, test := range []struct {
		name    string
		prepare func(config *pgxpool.Config)
		want    driver.Durability
		problem string
	}{
		{"as it is", func(*pgxpool.Config) {}, driver.DurabilityDisk, "pgbox.HeedWarnings"},
		{"heeded", HeedWarnings, driver.DurabilityReplicated, ""},
		{"heeded, and replaced", func(config *pgxpool.Config) {
			HeedWarnings(config)
			config.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
		}, driver.DurabilityDisk, "pgbox.HeedWarnings"},
		{"heeded, and passed on", func(config *pgxpool.Config) {
			config.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
			HeedWarnings(config)
		}, driver.DurabilityReplicated, ""},
		{"not sent", func(config *pgxpool.Config) {
			HeedWarnings(config)
			config.ConnConfig.RuntimeParams["client_min_messages"] = "error"
		}, driver.DurabilityDisk, "client_min_messages"},
	} {
		config, err := pgxpool.ParseConfig(pair.URL())
		ok(t, err)
		test.prepare(config)
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		ok(t, err)
		t.Cleanup(pool.Close)
		if problem, _ := expectDurability(t, open(t, pool, &Options{Schema: pgtest.Schema()}), test.want); !strings.Contains(problem, test.problem) || test.problem == "" && problem != "" {
			t.Errorf("%s: problem %q, want %q", test.name, problem, test.problem)
		}
	}
}

// TestCommitThatStopsWaitingForItsStandbyIsNotConfirmed cancels the session of a send that waits for a
// standby. The server commits, and says so.
func TestCommitThatStopsWaitingForItsStandbyIsNotConfirmed(t *testing.T) {
	t.Parallel()
	pair, schema := pgtest.StartPair(t, true), pgtest.Schema()
	b := open(t, connect(t, pair.URL()), &Options{Schema: schema})
	q, err := b.OpenQueue(t.Context(), "orders")
	ok(t, err)
	pair.Standby.Kill()
	done := make(chan error, 1)
	go func() {
		_, err := q.Send(t.Context(), outgoing("a"))
		done <- err
	}()
	for len(done) == 0 { // on a slow machine the call may end first, for its own time
		var cancelled int
		ok(t, b.pool.QueryRow(t.Context(), "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&cancelled))
		if cancelled > 0 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	if err := <-done; !isCode(err, driver.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, driver.ErrUnavailable)
	}
	ok(t, pair.Standby.Restart(t.Context())) // closing waits for commits
}

// TestKeepsItsPromisesWithSynchronousStandby runs random programs and concurrent load on a primary whose
// commits wait for a standby; with full volume the whole suite.
func TestKeepsItsPromisesWithSynchronousStandby(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t, true)
	paired := setup{
		connect: func(t testing.TB) *pgxpool.Pool { return connect(t, pair.URL()) },
		kill: func(t testing.TB) {
			restarted(pair.Primary)(t)
			pair.AwaitStandby(t)
		},
		cut: func(t testing.TB) { // the primary is gone, and what its standby has is left
			pair.Crash()
			pair.Promote(t)
		},
		durability: driver.DurabilityReplicated,
	}
	paired.keepsItsPromises(t)
}

// TestFailoverLosesNothingConfirmed crashes the primary under load again and again, and promotes its
// synchronous standby. Every confirmed message is received, and nothing that was not sent (PG-5).
func TestFailoverLosesNothingConfirmed(t *testing.T) {
	t.Parallel()
	pair, schema := pgtest.StartPair(t, true), pgtest.Schema()
	control := open(t, connect(t, pair.URL()), &Options{Schema: schema})
	ok(t, control.ConfigureQueue(t.Context(), "orders", driver.Config{MaxDeliveries: driver.Off}))
	seen := &tally{sent: make(map[string]bool), unknown: make(map[string]bool), received: make(map[string]int), acked: make(map[string]int)}
	var stop atomic.Bool
	var work sync.WaitGroup
	for p := range 2 {
		b := open(t, connect(t, pair.URL()), &Options{Schema: schema})
		q, err := b.OpenQueue(t.Context(), "orders")
		ok(t, err)
		for g := range 3 {
			work.Go(func() { seen.send(t.Context(), q, fmt.Sprint(p, "-", g), &stop) })
			work.Go(func() { seen.receive(t, q, &stop) })
		}
	}
	crashes := volume.Count(t, 2, 100)
	for n := range crashes {
		seen.awaitSend()
		expectDurability(t, control, driver.DurabilityReplicated)
		<-time.After(time.Duration(50+37*n%200) * time.Millisecond) // at another moment each time
		pair.Crash()
		pair.Promote(t)
	}
	seen.awaitSend()
	stop.Store(true)
	work.Wait()
	q, err := control.OpenQueue(t.Context(), "orders")
	ok(t, err)
	seen.drain(t, q)
	seen.check(t)
	t.Logf("%d crashes of the primary", crashes)
}
