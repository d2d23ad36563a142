// Package pgtest starts PostgreSQL for tests, in a directory of its own, on a socket in it.
// The server runs as the user of its package if the test runs as root, which the server
// refuses.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A Server is one PostgreSQL server. Its methods may be called from several goroutines.
type Server struct {
	dir      string
	binary   string
	owner    *syscall.Credential
	settings []string

	mu      sync.Mutex // guards the fields below
	command *exec.Cmd
	ended   chan struct{}
	log     proctest.Output
}

// folderVariable names the folder of the programs of another version.
const folderVariable = "MAILBOX_POSTGRES_BIN"

// findBinary finds a program of PostgreSQL's, which Debian does not have on the PATH.
func findBinary(name string) (string, error) {
	if folder := os.Getenv(folderVariable); folder != "" {
		path, err := exec.LookPath(filepath.Join(folder, name))
		if err != nil {
			return "", &proctest.MissingError{Program: "PostgreSQL", Err: err}
		}
		return path, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", &proctest.MissingError{Program: "PostgreSQL", Err: err}
	}
	return slices.Max(found), nil
}

// account returns the user of the server if this process is root, and nil otherwise.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		return nil, &proctest.MissingError{Program: "PostgreSQL", Err: err}
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// Start starts a server with further settings, such as "fsync=on", and returns when it answers.
// It is stopped when the test ends.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := start(t.Context(), settings)
	if err != nil {
		proctest.End(t, err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := s.deadlocks(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// deadlocks returns an error with the first transactions that waited for each other. Backends
// repeat a transaction that was ended for that, so only the log of the server tells.
func (s *Server) deadlocks() error {
	const words, most = "deadlock detected", 4000
	log := s.log.String()
	at := strings.Index(log, words)
	if at < 0 {
		return nil
	}
	return fmt.Errorf("transactions waited for each other:\n%s", log[at:min(at+most, len(log))])
}

func start(ctx context.Context, settings []string) (*Server, error) {
	initdb, err := findBinary("initdb")
	if err != nil {
		return nil, err
	}
	s, err := vacant(settings)
	if err != nil {
		return nil, err
	}
	create := exec.CommandContext(ctx, initdb, "-D", s.data(), "-U", "mailbox", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	create.Dir, create.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: s.owner}
	if out, err := create.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), os.RemoveAll(s.dir))
	}
	if err := s.Restart(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// vacant returns a server that has a directory, and no data.
func vacant(settings []string) (*Server, error) {
	s := &Server{settings: settings}
	var err error
	if s.binary, err = findBinary("postgres"); err != nil {
		return nil, err
	}
	if s.owner, err = account(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, err
	}
	if s.owner != nil {
		if err := os.Chown(s.dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return nil, errors.Join(err, os.RemoveAll(s.dir))
		}
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// URL is the address of the server.
func (s *Server) URL() string { return "postgres:///postgres?host=" + s.dir + "&user=mailbox" }

// Socket returns the folder of the server's socket, which is a host to clients, and its user.
func (s *Server) Socket() (folder, user string) { return s.dir, "mailbox" }

// patience is how long a server may take to start or stop.
const patience = 2 * time.Minute

// Restart starts the server again after Kill or Stop, and waits until it answers. Children of a
// server that was killed may take a moment to end; until then it tries again.
func (s *Server) Restart(ctx context.Context) error {
	for until := time.Now().Add(patience); ; {
		ended := s.launch()
		err := s.answers(ctx, ended, until)
		if err == nil {
			return nil
		}
		select {
		case <-ended: // it refused to start
		default:
			s.Kill()
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("PostgreSQL does not start: %w\n%s", err, s.log.String())
		}
		<-time.After(50 * time.Millisecond)
	}
}

// launch starts the process.
func (s *Server) launch() (ended chan struct{}) {
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=32MB", "-c", "autovacuum_naptime=5s", "-c", "deadlock_timeout=10ms"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	command := exec.Command(s.binary, args...)
	command.Dir, command.Stdout, command.Stderr = s.dir, &s.log, &s.log
	// An orderly stop, because it has children.
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Pdeathsig: syscall.SIGINT}
	ended = make(chan struct{})
	started := make(chan struct{})
	go func() {
		// The kernel ties the child to the thread that created it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := command.Start()
		s.mu.Lock()
		s.command, s.ended = command, ended
		s.mu.Unlock()
		close(started)
		if err == nil {
			_ = command.Wait() // how it ends is the test's doing
		}
	}()
	<-started
	return ended
}

// answers waits until the server answers.
func (s *Server) answers(ctx context.Context, ended chan struct{}, until time.Time) error {
	for {
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		if time.Now().After(until) {
			return err
		}
		select {
		case <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// signal sends a signal to the server and waits until it is gone.
func (s *Server) signal(signal syscall.Signal) {
	s.mu.Lock()
	command, ended := s.command, s.ended
	s.mu.Unlock()
	if command != nil && command.Process != nil {
		_ = command.Process.Signal(signal) // fails if it is gone
		<-ended
	}
}

// Kill ends the server as a crash does.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

// Close stops the server and removes its data.
func (s *Server) Close() {
	s.signal(syscall.SIGINT)
	_ = os.RemoveAll(s.dir) // is in the directory for temporary files
}

// Pool returns connections to the server, which are closed when the test ends.
func (s *Server) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Schema returns a unique name for the schema of a test.
func Schema() string { return "test_" + strings.ToLower(rand.Text()[:12]) }

// shared is a server that outlives the test that happens to be first. It does not sync.
var shared = proctest.Shared[*Server]{Launch: func(t testing.TB) (*Server, error) {
	s, err := start(context.WithoutCancel(t.Context()), []string{"fsync=off", "full_page_writes=off"})
	launched = s
	return s, err
}}

// launched is the shared server, if a test has needed one.
var launched *Server

// Shared returns a server for tests that do not damage it, each in a schema of its own. It is
// started for the first such test. TestMain has to call Main, which stops it.
func Shared(t testing.TB) *Server { t.Helper(); return shared.Get(t) }

// Main runs the tests, stops the shared server, and ends the process: with a failure if tests
// failed, left goroutines behind or made transactions wait for each other.
func Main(m *testing.M) {
	proctest.Main(m, func() error {
		if launched == nil {
			return goleak.Find()
		}
		return errors.Join(goleak.Find(), launched.deadlocks())
	}, &shared)
}
