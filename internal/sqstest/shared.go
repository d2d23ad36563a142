package sqstest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mailboxmq/mailbox/internal/proctest"
)

var shared = proctest.Shared[*Server]{Launch: func(testing.TB) (*Server, error) { return Launch() }}

// Shared returns a server for tests that do it no harm. It is started for the first
// of them, and stopped by Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	return shared.Get(t)
}

// Prefix returns what the names of no other test's queues begin with.
func Prefix() string { return fmt.Sprintf("t%012x-", rand.Uint64()&(1<<48-1)) }

// Main runs the tests, stops what they shared, and ends the process: with a failure
// if tests failed, or if they left goroutines behind.
//
//	func TestMain(m *testing.M) { sqstest.Main(m) }
func Main(m *testing.M) { shared.Main(m) }
