package gates_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// program is the path of mailboxd as it is shipped, without the race detector: its
// figures are what users get. It is kept between runs, and built again when it is out
// of date. MAILBOX_MAILBOXD names another one.
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
	path, err := filepath.Abs(filepath.Join("..", "..", ".cache", "gates", "mailboxd"))
	if err != nil {
		return "", err
	}
	text, err := exec.Command("go", "build", "-o", path, "github.com/mailboxmq/mailbox/cmd/mailboxd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mailboxd cannot be built: %w\n%s", err, text)
	}
	return path, nil
})

// many is how much of something a test does: what MAILBOX_GATES says, or else a
// number that is fit for every day.
func many(t testing.TB, everyday int) int {
	t.Helper()
	text := os.Getenv("MAILBOX_GATES")
	if text == "" {
		return everyday
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("MAILBOX_GATES is to be a number, and is %q", text)
	}
	return n
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

// eventually fails the test if something does not come true in time.
func eventually(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !holds(); pause(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("within %v: not %s", patience, what)
		}
	}
}

// pause lets time pass. Daemons in processes of their own have no virtual time.
func pause(d time.Duration) { time.Sleep(d) }
