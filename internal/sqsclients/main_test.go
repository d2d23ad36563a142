package sqsclients_test

import (
	"os"
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	runBeside()
	redistest.Main(m)
}

// programs returns the directory with mailboxd and mailbox. MAILBOX_PROGRAMS names
// another one.
func programs(t testing.TB) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var build = sync.OnceValues(func() (string, error) {
	if other := os.Getenv("MAILBOX_PROGRAMS"); other != "" {
		return other, nil
	}
	return proctest.Build("sqsprograms", "mailboxd", "mailbox")
})
