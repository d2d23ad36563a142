package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A Pooler is pgbouncer in transaction mode before a server.
type Pooler struct{ dir string }

// Pooler starts pgbouncer before the server, with a few connections, and returns when it answers. It
// ends the test if pgbouncer is not installed, see proctest.End. It is stopped when the test ends.
func (s *Server) Pooler(t testing.TB) *Pooler {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/pgbouncer") // where Debian has it
	}
	if err != nil {
		proctest.End(t, &proctest.MissingError{Program: "pgbouncer", Err: err})
	}
	dir, err := os.MkdirTemp("", "pgtest-pooler-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	settings := fmt.Sprintf("[databases]\n* = host=%s user=mailbox\n[pgbouncer]\npool_mode = transaction\nunix_socket_dir = %s\nauth_type = any\n"+
		"max_client_conn = 500\ndefault_pool_size = 10\n", s.dir, dir)
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	if s.owner != nil {
		if err := os.Chown(dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	var log proctest.Output
	command := exec.Command(binary, file)
	command.Dir, command.Stdout, command.Stderr = dir, &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // its error says that it was killed
	})
	p := &Pooler{dir}
	p.await(t, &log)
	return p
}

func (p *Pooler) config(t testing.TB) *pgxpool.Config {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres:///postgres?host=" + p.dir + "&port=6432&user=mailbox")
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	return config
}

// await waits until the pooler answers.
func (p *Pooler) await(t testing.TB, log *proctest.Output) {
	t.Helper()
	config := p.config(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		conn, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
		if err == nil {
			_ = conn.Close(ctx)
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("pgbouncer does not answer: %v\n%s", err, log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Pool returns connections to the pooler, which are closed when the test ends.
func (p *Pooler) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), p.config(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
