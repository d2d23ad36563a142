package sqstest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

var shared struct {
	mainRuns bool // set before any test runs

	mu     sync.Mutex // guards the fields below
	server *Server
	err    error
}

// Shared returns a server for tests that do it no harm. It is started for the first
// of them, and stopped by Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	if !shared.mainRuns {
		t.Fatal("sqstest: nobody would stop what tests share: let TestMain call sqstest.Main")
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Launch()
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Prefix returns what the names of no other test's queues begin with.
func Prefix() string { return fmt.Sprintf("t%012x-", rand.Uint64()&(1<<48-1)) }

// Main runs the tests, stops what they shared, and ends the process: with a failure
// if tests failed, or if they left goroutines behind.
//
//	func TestMain(m *testing.M) { sqstest.Main(m) }
func Main(m *testing.M) {
	shared.mainRuns = true
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code) // a TestMain has nothing to return to
}
