package dynamotest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

var shared = proctest.Shared[*Server]{Launch: func(t testing.TB) (*Server, error) { return Launch(t.Context()) }}

// Shared returns a server for all tests that leave it as it was. The first of them starts it,
// outside of a bubble, and Main stops it.
func Shared(t testing.TB) *Server {
	t.Helper()
	return shared.Get(t)
}

// Table returns a table name that no other test uses.
func Table() string { return fmt.Sprintf("test-%016x", rand.Uint64()) }

// Main runs the tests and, with dynalite, the examples. Then it stops the shared server and ends
// the process, with a failure if tests
// failed or left goroutines behind.
//
//	func TestMain(m *testing.M) { dynamotest.Main(m) }
func Main(m *testing.M) {
	_, missing := dynalite.Installed()
	proctest.LeaveOutExamples(missing)
	proctest.Main(m, func() error { return goleak.Find() }, &shared)
}
