package redistest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A sharing is a server or group that is started for the first test that uses it, and
// stopped by Main.
type sharing[T interface{ Close() }] struct {
	start func(context.Context) (T, error)

	mu      sync.Mutex // guards the fields below
	tried   bool
	started bool
	value   T
	err     error
}

var (
	sharedServer = &sharing[*Server]{start: func(ctx context.Context) (*Server, error) {
		s, err := newSettings(nil)
		if err != nil {
			return nil, err
		}
		return startServer(ctx, s)
	}}
	sharedSentinel = &sharing[*SentinelGroup]{start: func(ctx context.Context) (*SentinelGroup, error) {
		return startSentinel(ctx, []Option{NodeTimeout(sharedTimeout)})
	}}
	sharedCluster = &sharing[*ClusterGroup]{start: func(ctx context.Context) (*ClusterGroup, error) {
		return startCluster(ctx, []Option{NodeTimeout(sharedTimeout)})
	}}
	mainRuns bool // set before any test runs
)

// sharedTimeout keeps shared servers from being replaced because a busy machine makes them
// silent for a while.
const sharedTimeout = 30 * time.Second

// SharedServer returns a server for tests that do not damage it: no signals, no FLUSHALL,
// and keys that begin with Prefix. It is started for the first such test. TestMain has to
// call Main, which stops it.
func SharedServer(t testing.TB) *Server { t.Helper(); return sharedServer.get(t) }

// SharedSentinel is like SharedServer, for a group watched by sentinels.
func SharedSentinel(t testing.TB) *SentinelGroup { t.Helper(); return sharedSentinel.get(t) }

// SharedCluster is like SharedServer, for a cluster.
func SharedCluster(t testing.TB) *ClusterGroup { t.Helper(); return sharedCluster.get(t) }

func (s *sharing[T]) get(t testing.TB) T {
	t.Helper()
	if !mainRuns {
		t.Fatal("redistest: shared servers need redistest.Main to stop them; call it in TestMain")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		// It outlives the test that happens to be first.
		s.value, s.err = s.start(context.WithoutCancel(t.Context()))
		s.started = s.err == nil
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.value
}

func (s *sharing[T]) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		s.value.Close()
	}
}

// Prefix returns a unique prefix for the keys of a test.
func Prefix(t testing.TB) string {
	t.Helper()
	return "test-" + randomText()[:12] + "-"
}

// Main runs the tests, stops shared servers, and ends the process: with a failure if tests
// failed or left goroutines behind. Unless the flag -parallel says otherwise, eight parallel
// tests run at a time: they mostly wait.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m *testing.M, options ...goleak.Option) {
	mainRuns = true
	waitTogether()
	code := m.Run()
	sharedServer.stop()
	sharedSentinel.stop()
	sharedCluster.stop()
	if code == 0 {
		if err := leftGoroutines(options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code) // a TestMain has nothing to return to
}

// waitTogether lets more tests run in parallel than there are processors.
func waitTogether() {
	const name, number = "test.parallel", "8"
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == name })
	if !asked {
		_ = flag.Set(name, number) // every test binary has the flag
	}
}

// leftGoroutines returns an error that lists running goroutines. A client of a cluster
// closes unneeded connections after five seconds, even if it is closed itself, which is
// longer than goleak waits.
func leftGoroutines(options []goleak.Option) error {
	deadline := time.Now().Add(8 * time.Second)
	for {
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
