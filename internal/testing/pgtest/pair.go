package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A Pair is a primary and a standby that follows it. Their sockets stay where they are when
// they change roles. Its methods are for one goroutine.
type Pair struct{ Primary, Standby *Server }

// StartPair starts a primary and a standby, with further settings for both. Commits wait for
// the standby if it is synchronous. Both are stopped when the test ends.
func StartPair(t testing.TB, synchronous bool, settings ...string) *Pair {
	t.Helper()
	settings = append(settings, "wal_retrieve_retry_interval=100ms") // the standby finds a primary that was restarted
	p := &Pair{Primary: Start(t, settings...)}
	second, err := vacant(settings)
	if err != nil {
		proctest.End(t, err)
	}
	t.Cleanup(second.Close)
	p.Standby = second
	if err := p.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if synchronous {
		p.Configure(t, p.Standby, "synchronous_standby_names", "*")
		p.Configure(t, p.Primary, "synchronous_standby_names", "*")
	}
	return p
}

// URL is the address of whichever server is the primary.
func (p *Pair) URL() string {
	return "postgres:///postgres?host=" + p.Primary.dir + "," + p.Standby.dir + "&user=mailbox&target_session_attrs=read-write"
}

// Configure changes a setting of a server while it runs, and waits until it has read it.
func (p *Pair) Configure(t testing.TB, s *Server, setting, value string) {
	t.Helper()
	err := s.query(t.Context(), func(conn *pgx.Conn) error {
		// SET in the session keeps this from waiting for a standby that is not there.
		for _, statement := range []string{
			"SET synchronous_commit = local", fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", setting, value), "SELECT pg_reload_conf()",
		} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				return err
			}
		}
		return poll(t.Context(), func() (bool, error) {
			var now string
			err := conn.QueryRow(t.Context(), "SELECT setting FROM pg_settings WHERE name = $1", setting).Scan(&now)
			return now == value, err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Crash kills all processes of the primary at once, as the loss of its machine does.
func (p *Pair) Crash() { p.Primary.crash() }

// Promote makes the standby the primary, and the other server, which has crashed, its
// standby, from a new copy.
func (p *Pair) Promote(t testing.TB) {
	t.Helper()
	p.promote(t)
	if err := p.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// promote makes the standby the primary, without another standby.
func (p *Pair) promote(t testing.TB) {
	t.Helper()
	p.Primary, p.Standby = p.Standby, p.Primary
	err := p.Primary.query(t.Context(), func(conn *pgx.Conn) error {
		var done bool
		err := conn.QueryRow(t.Context(), "SELECT pg_promote(true, $1)", int(patience.Seconds())).Scan(&done)
		if err == nil && !done {
			err = errors.New("the standby was not promoted")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// follow makes the standby a copy of the primary, starts it, and waits until it streams.
func (p *Pair) follow(ctx context.Context) error {
	program, err := findBinary("pg_basebackup")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(p.Standby.data()); err != nil {
		return err
	}
	backup := exec.CommandContext(ctx, program, "-h", p.Primary.dir, "-U", "mailbox", "-D", p.Standby.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	backup.Dir, backup.SysProcAttr = p.Standby.dir, &syscall.SysProcAttr{Credential: p.Standby.owner}
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	if err := p.Standby.Restart(ctx); err != nil {
		return err
	}
	return p.await(ctx, streaming)
}

// streaming is true when the standby follows.
const streaming = "SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming'"

// AwaitStandby waits until the standby follows the primary, which was restarted.
func (p *Pair) AwaitStandby(t testing.TB) {
	t.Helper()
	p.mustAwait(t, streaming)
}

// poll waits until a condition holds.
func poll(ctx context.Context, holds func() (bool, error)) error {
	for until := time.Now().Add(patience); ; {
		done, err := holds()
		switch {
		case err != nil || done:
			return err
		case time.Now().After(until):
			return errors.New("the condition does not come true")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// query runs f with a connection.
func (s *Server) query(ctx context.Context, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	err = f(conn)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// crash kills the server and its children, which would otherwise finish what they do.
func (s *Server) crash() {
	s.mu.Lock()
	command := s.command
	s.mu.Unlock()
	pid := command.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it starts no more of them
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
	s.Kill()
}

// AwaitReplay waits until the standby has everything that is committed.
func (p *Pair) AwaitReplay(t testing.TB) {
	t.Helper()
	p.mustAwait(t, "SELECT count(*) > 0 FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()")
}

// AwaitAlone waits until no standby follows the primary.
func (p *Pair) AwaitAlone(t testing.TB) {
	t.Helper()
	p.mustAwait(t, "SELECT count(*) = 0 FROM pg_stat_replication")
}

func (p *Pair) mustAwait(t testing.TB, condition string) {
	t.Helper()
	if err := p.await(t.Context(), condition); err != nil {
		t.Fatal(err)
	}
}

// await waits until a query on the primary returns true.
func (p *Pair) await(ctx context.Context, condition string) error {
	return p.Primary.query(ctx, func(conn *pgx.Conn) error {
		return poll(ctx, func() (holds bool, err error) {
			err = conn.QueryRow(ctx, condition).Scan(&holds)
			return holds, err
		})
	})
}
