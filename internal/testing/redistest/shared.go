package redistest

import (
	"context"
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// Servers and groups that are started for the first test that uses them, and stopped by Main.
var (
	sharedServer = shared(func(ctx context.Context) (*Server, error) {
		s, err := newSettings(nil)
		if err != nil {
			return nil, err
		}
		return startServer(ctx, s)
	})
	sharedSentinel = shared(func(ctx context.Context) (*SentinelGroup, error) {
		return startSentinel(ctx, nil)
	})
	sharedCluster = shared(func(ctx context.Context) (*ClusterGroup, error) {
		return startCluster(ctx, nil)
	})
)

// shared returns a server or group that outlives the test that happens to be first.
func shared[S interface{ Close() }](start func(context.Context) (S, error)) *proctest.Shared[S] {
	return &proctest.Shared[S]{Launch: func(t testing.TB) (S, error) { return start(context.WithoutCancel(t.Context())) }}
}

// SharedServer returns a server for tests that do not damage it: no signals, no FLUSHALL,
// and keys that begin with Prefix. It is started for the first such test. TestMain has to
// call Main, which stops it.
func SharedServer(t testing.TB) *Server { t.Helper(); return sharedServer.Get(t) }

// SharedSentinel is like SharedServer, for a group watched by sentinels.
func SharedSentinel(t testing.TB) *SentinelGroup { t.Helper(); return sharedSentinel.Get(t) }

// SharedCluster is like SharedServer, for a cluster.
func SharedCluster(t testing.TB) *ClusterGroup { t.Helper(); return sharedCluster.Get(t) }

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
	waitTogether()
	proctest.Main(m, func() error { return leftGoroutines(options) }, sharedServer, sharedSentinel, sharedCluster)
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
