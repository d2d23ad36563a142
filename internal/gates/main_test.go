package gates_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/proctest"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// program is the path of mailboxd: its figures are what users get. MAILBOX_MAILBOXD
// names another one.
func program(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	if other := os.Getenv("MAILBOX_MAILBOXD"); other != "" {
		return other, nil
	}
	dir, err := proctest.Build("gates", "mailboxd")
	return filepath.Join(dir, "mailboxd"), err
})

// many is how much of something a test does: what MAILBOX_GATES says, or else a
// number that is fit for every day.
func many(t testing.TB, everyday int) int {
	t.Helper()
	return proctest.Number(t, "MAILBOX_GATES", everyday)
}

// percentile returns how long the slowest of a share took. It sorts.
func percentile(took []time.Duration, share float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(share*float64(len(took))))]
}

// figures is how long things took, for a log.
func figures(took []time.Duration) string {
	return fmt.Sprintf("p50 %v, p95 %v, p99 %v, longest %v", round(percentile(took, 0.5)), round(percentile(took, 0.95)),
		round(percentile(took, 0.99)), round(percentile(took, 1)))
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// pause lets time pass. Daemons in processes of their own have no virtual time.
func pause(d time.Duration) { time.Sleep(d) }
