package dynamotest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mailboxmq/mailbox/internal/proctest"
)

var shared = proctest.Shared[*Server]{Launch: func(t testing.TB) (*Server, error) { return Launch(t.Context()) }}

// Shared returns a server for tests that do it no harm. It is started for the
// first of them, and stopped by Main. It cannot be started from inside a bubble.
func Shared(t testing.TB) *Server {
	t.Helper()
	return shared.Get(t)
}

// Table returns a name that no other test's table has.
func Table() string { return fmt.Sprintf("test-%016x", rand.Uint64()) }

// Main runs the tests, stops what they shared, and ends the process: with a
// failure if tests failed, or if they left goroutines behind.
//
//	func TestMain(m *testing.M) { dynamotest.Main(m) }
func Main(m *testing.M) { shared.Main(m) }
