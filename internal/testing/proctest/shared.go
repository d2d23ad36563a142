package proctest

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is a server for all tests that leave it as it was. The first of them starts it, and
// Main stops it.
type Shared[S interface{ Close() }] struct {
	// Launch starts the server for the first test.
	Launch func(t testing.TB) (S, error)

	mu      sync.Mutex // guards the fields below
	started bool
	server  S
	err     error
}

// mainRuns is set before any test runs.
var mainRuns bool

// Get returns the server. It ends the test if the server does not start, see End.
func (s *Shared[S]) Get(t testing.TB) S {
	t.Helper()
	if !mainRuns {
		t.Fatal("the shared server needs TestMain to call Main, which stops it")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		s.server, s.err = s.Launch(t)
	}
	if s.err != nil {
		End(t, s.err)
	}
	return s.server
}

// Stop closes the server if it was started.
func (s *Shared[S]) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started && s.err == nil {
		s.server.Close()
	}
}

// Main runs the tests, stops the shared servers, and ends the process, with a failure if tests
// failed or if leaked returns an error, which lists the goroutines that tests left behind.
func Main(m *testing.M, leaked func() error, shared ...interface{ Stop() }) {
	mainRuns = true
	code := m.Run()
	for _, s := range shared {
		s.Stop()
	}
	if code == 0 {
		if err := leaked(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code) // TestMain has no result
}
