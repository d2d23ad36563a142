package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A Server is one Redis process. Its methods may be called from several
// goroutines.
type Server struct {
	settings settings
	sentinel bool // it is a sentinel, not a data server
	binary   string
	dir      string
	port     int
	busPort  int // between nodes of a cluster; 0 without one
	clock    *clock

	ownCommands atomic.Int64 // sent by this package since the process started

	stopped atomic.Bool // by SIGSTOP

	mu      sync.Mutex // guards process and closed
	process *process
	closed  bool
}

// patience is how long a server, or a group of them, may take to start.
const patience = 3 * time.Minute

// binaryVariable names another server to test with, Valkey's for one.
const binaryVariable = "MAILBOX_REDIS_SERVER"

// findBinary returns the path of redis-server.
func findBinary() (string, error) {
	name := "redis-server"
	if other := os.Getenv(binaryVariable); other != "" {
		name = other
	}
	binary, err := exec.LookPath(name)
	if err != nil {
		return "", &proctest.MissingError{Program: name, Err: err}
	}
	return binary, nil
}

// Standalone starts a server and returns when it answers. It keeps its data in
// memory only, unless AppendOnly says otherwise. It is closed when the test
// ends.
func Standalone(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := newSettings(opts)
	if err != nil {
		t.Fatal(err)
	}
	server, err := startServer(t.Context(), s)
	if err != nil {
		proctest.End(t, err)
	}
	t.Cleanup(server.Close)
	return server
}

// startServer starts a server with further lines of configuration.
func startServer(ctx context.Context, s settings, directives ...string) (*Server, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	server := &Server{settings: s, binary: binary}
	for _, directive := range directives {
		server.sentinel = server.sentinel || strings.HasPrefix(directive, "sentinel ")
	}
	if server.dir, err = os.MkdirTemp("", "redistest-"); err != nil {
		return nil, err
	}
	if s.skewed {
		if server.clock, err = newClock(server.dir, s.skew); err != nil {
			server.Close()
			return nil, err
		}
	}
	// A port that is free now may be taken in a moment; then it tries another.
	for range 20 {
		if err = server.claimPorts(); err == nil {
			err = server.begin(ctx, directives)
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

// claimPorts looks for free ports below those that the kernel gives to
// outgoing connections, so that a server finds its port free when it restarts.
func (s *Server) claimPorts() error {
	const lowest, highest = 20_000, 32_000
	var ports []int
	for range 100 {
		port := lowest + rand.IntN(highest-lowest)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return err
		}
		if ports = append(ports, port); len(ports) == 2 && ports[0] != ports[1] {
			s.port, s.busPort = ports[0], ports[1]
			return nil
		}
		ports = ports[:min(len(ports), 1)]
	}
	return fmt.Errorf("redistest: no free port between %d and %d", lowest, highest)
}

// begin writes the configuration and starts the process for the first time.
func (s *Server) begin(ctx context.Context, directives []string) error {
	if err := os.WriteFile(s.path("redis.conf"), []byte(s.configuration(directives)), 0o600); err != nil {
		return err
	}
	if s.settings.tls != nil {
		if err := s.settings.tls.write(s.dir); err != nil {
			return err
		}
	}
	return s.launch(ctx)
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// launch starts the process and waits until it answers.
func (s *Server) launch(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("redistest: the server is closed")
	}
	if s.process != nil && !s.process.gone() {
		return errors.New("redistest: the server is running")
	}
	command := exec.Command(s.binary, s.path("redis.conf"))
	if s.sentinel {
		command.Args = append(command.Args, "--sentinel")
	}
	command.Dir = s.dir
	command.Env = os.Environ()
	if s.clock != nil {
		command.Env = append(command.Env, s.clock.environment()...)
	}
	earlier := len(s.Log())
	process, err := startProcess(command, s.path("log"))
	if err != nil {
		return err
	}
	s.process = process
	s.stopped.Store(false)
	s.ownCommands.Store(0)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = until(ctx, "redis-server to answer", func(ctx context.Context) error {
		if process.gone() {
			cancel() // waiting is useless
			return errors.New("it has ended")
		}
		return s.answers(ctx, process.pid())
	})
	if err == nil {
		return nil
	}
	process.kill()
	log := s.Log()[earlier:]
	if strings.Contains(log, "Address already in use") || strings.Contains(log, "Failed listening") {
		return fmt.Errorf("redistest: port %d or %d: %w", s.port, s.busPort, syscall.EADDRINUSE)
	}
	return fmt.Errorf("%w; its log says:\n%s", err, log)
}

// answers returns nil if this process answers, and not another that took its port, and has
// loaded its data.
func (s *Server) answers(ctx context.Context, pid int) error {
	info, err := s.Info(ctx, "server")
	if err != nil {
		return err
	}
	if info["process_id"] != strconv.Itoa(pid) {
		return fmt.Errorf("process %s answers, not %d", info["process_id"], pid)
	}
	_, err = s.Do(ctx, "PING")
	return err
}

// Addr returns the server's address, host and port. It stays the same.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// ClientOption returns the options of a client, including credentials.
func (s *Server) ClientOption() rueidis.ClientOption {
	return s.settings.clientOption(s.Addr())
}

func (s *settings) clientOption(addresses ...string) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: addresses}
	if len(s.users) > 0 {
		option.Username, option.Password = s.users[0].name, s.users[0].password
	}
	if s.tls != nil {
		option.TLSConfig = s.tls.client
	}
	return option
}

// PID returns the id of the process that was started last.
func (s *Server) PID() int { return s.current().pid() }

// Log returns the server's log.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.path("log"))
	if err != nil {
		return ""
	}
	return string(text)
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Running reports whether the process runs and is not stopped.
func (s *Server) Running() bool { return !s.current().gone() && !s.stopped.Load() }

// Kill ends the process with SIGKILL, and returns when it has ended. Data that it had
// written to files survives.
func (s *Server) Kill() { s.current().kill() }

// Stop halts the process with SIGSTOP: its connections stay open without answers, as when a
// machine hangs.
func (s *Server) Stop() {
	s.stopped.Store(true)
	s.current().signal(syscall.SIGSTOP)
}

// Continue lets a stopped process continue, unaware that time has passed.
func (s *Server) Continue() {
	s.current().signal(syscall.SIGCONT)
	s.stopped.Store(false)
}

// Restart starts a killed server again, on the same port and with the same directory. It
// returns when the server answers and has loaded its data.
func (s *Server) Restart(ctx context.Context) error {
	// The port may be busy for a moment, with connections that are ending.
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	if err := s.mendAppendOnlyFile(ctx); err != nil {
		return err
	}
	waited := until(ctx, "the port", func(ctx context.Context) error {
		if err = s.launch(ctx); errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		return nil
	})
	return errors.Join(err, waited)
}

// mendAppendOnlyFile removes a transaction that was cut when the server was killed. Redis ignores
// it at the next start, but leaves its first commands in the file, and the start after that
// carries them out (seen with 7.0.15). docs/redis.md tells operators to do the same.
func (s *Server) mendAppendOnlyFile(ctx context.Context) error {
	manifest := s.path(filepath.Join("appendonlydir", "appendonly.aof.manifest"))
	program, err := exec.LookPath("redis-check-aof")
	if _, missing := os.Stat(manifest); err != nil || missing != nil || s.Running() {
		return nil // other servers have other programs
	}
	command := exec.CommandContext(ctx, program, "--fix", manifest)
	command.Stdin = strings.NewReader("y\n")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("redistest: %w: %s", err, out)
	}
	return nil
}

// SetClockSkew sets how far the server's wall clock is off. The server must have been
// started with ClockSkew.
func (s *Server) SetClockSkew(d time.Duration) error {
	if s.clock == nil {
		return errors.New("redistest: start the server with ClockSkew to change its clock later")
	}
	return s.clock.set(d)
}

// ClockSkew returns how far the server's wall clock is off.
func (s *Server) ClockSkew() time.Duration {
	if s.clock == nil {
		return 0
	}
	return time.Duration(s.clock.skew.Load())
}

// Close kills the server and removes its directory. Closing twice is fine.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.process != nil {
		s.process.kill()
	}
	_ = os.RemoveAll(s.dir) // if it fails, the rest is in the system's temporary folder
}

// CommandCount returns how many commands a server has processed since it was started,
// except those of this package. Between two calls it does not grow if only this package
// talks to the server.
func CommandCount(t testing.TB, s *Server) int64 {
	t.Helper()
	own := s.ownCommands.Load()
	info, err := s.Info(t.Context(), "stats")
	if err != nil {
		t.Fatal(err)
	}
	total, err := strconv.ParseInt(info["total_commands_processed"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if s.settings.adminUser().name != "" {
		own++ // the AUTH before the INFO; INFO does not count itself
	}
	return total - own
}
