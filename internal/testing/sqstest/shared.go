package sqstest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

var shared = proctest.Shared[*Server]{Launch: func(testing.TB) (*Server, error) { return Launch() }}

// Shared returns a server for all tests that leave it as it was. The first of them starts it,
// and Main stops it.
func Shared(t testing.TB) *Server {
	t.Helper()
	return shared.Get(t)
}

// Prefix returns a prefix of queue names that no other test uses.
func Prefix() string { return fmt.Sprintf("t%012x-", rand.Uint64()&(1<<48-1)) }

// Main runs the tests, stops the shared server, and ends the process, with a failure if tests
// failed or left goroutines behind.
//
//	func TestMain(m *testing.M) { sqstest.Main(m) }
func Main(m *testing.M) { proctest.Main(m, func() error { return goleak.Find() }, &shared) }
