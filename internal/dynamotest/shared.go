package dynamotest

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

// Shared returns a server for tests that do it no harm. It is started for the
// first of them, and stopped by Main. It cannot be started from inside a bubble.
func Shared(t testing.TB) *Server {
	t.Helper()
	if !shared.mainRuns {
		t.Fatal("dynamotest: nobody would stop what tests share: let TestMain call dynamotest.Main")
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Launch(t.Context())
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Table returns a name that no other test's table has.
func Table() string { return fmt.Sprintf("test-%016x", rand.Uint64()) }

// Main runs the tests, stops what they shared, and ends the process: with a
// failure if tests failed, or if they left goroutines behind.
//
//	func TestMain(m *testing.M) { dynamotest.Main(m) }
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
