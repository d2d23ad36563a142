package proctest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// Shared is a server for all tests that leave it as it was. The first of them starts it, and
// Main stops it.
type Shared[S interface{ Close() }] struct {
	// Launch starts the server for the first test.
	Launch func(t testing.TB) (S, error)

	mainRuns bool // set before any test runs

	mu      sync.Mutex // guards the fields below
	started bool
	server  S
	err     error
}

// Get returns the server.
func (s *Shared[S]) Get(t testing.TB) S {
	t.Helper()
	if !s.mainRuns {
		t.Fatal("the shared server needs TestMain to call Main, which stops it")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		s.server, s.err = s.Launch(t)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

// Main runs the tests, stops the shared server, and ends the process, with a failure if tests
// failed or left goroutines behind.
func (s *Shared[S]) Main(m *testing.M) {
	s.mainRuns = true
	code := m.Run()
	if s.started && s.err == nil {
		s.server.Close()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code) // TestMain has no result
}
