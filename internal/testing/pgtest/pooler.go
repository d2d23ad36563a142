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

// Pooler starts pgbouncer in transaction mode before the server, with a few connections, and
// returns a pool of connections to it. It skips the test if pgbouncer is not installed. Everything
// ends with the test.
func (s *Server) Pooler(t testing.TB) *pgxpool.Pool {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/pgbouncer") // where Debian has it
	}
	if err != nil {
		t.Skip(&proctest.MissingError{Program: "pgbouncer", Err: err})
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
	return pooled(t, dir, &log)
}

// pooled returns connections to the pooler in a folder, when it answers.
func pooled(t testing.TB, dir string, log *proctest.Output) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres:///postgres?host=" + dir + "&port=6432&user=mailbox")
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		conn, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
		if err == nil {
			_ = conn.Close(ctx)
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("pgbouncer does not answer: %v\n%s", err, log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
