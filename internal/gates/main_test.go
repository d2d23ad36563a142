package gates_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// program returns the path of mailboxd, built as for users. MAILBOX_MAILBOXD
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

// percentile returns the duration that the given share did not exceed. It sorts took.
func percentile(took []time.Duration, share float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(share*float64(len(took))))]
}

// figures returns percentiles as text.
func figures(took []time.Duration) string {
	return fmt.Sprintf("p50 %v, p95 %v, p99 %v, longest %v", round(percentile(took, 0.5)), round(percentile(took, 0.95)),
		round(percentile(took, 0.99)), round(percentile(took, 1)))
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// pause sleeps. Daemons in separate processes have no virtual time.
func pause(d time.Duration) { time.Sleep(d) }
