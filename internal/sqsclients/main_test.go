package sqsclients_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/redistest"
)

func TestMain(m *testing.M) {
	runBeside()
	redistest.Main(m)
}

// programs is the directory with mailboxd and mailbox as they are shipped, without the
// race detector. They are kept between runs, and built again when they are out of date.
// MAILBOX_PROGRAMS names another one.
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
	dir, err := filepath.Abs(cached("sqsprograms"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	const module = "github.com/mailboxmq/mailbox"
	text, err := exec.Command("go", "build", "-o", dir+"/", module+"/cmd/mailboxd", module+"/cmd/mailbox").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the programs cannot be built: %w\n%s", err, text)
	}
	return dir, nil
})

// cached is a directory for what is made or installed once.
func cached(name string) string { return filepath.Join("..", "..", ".cache", name) }

// number is what a variable of the environment says, or else a number that is fit for
// every day.
func number(t testing.TB, variable string, everyday int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return everyday
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is to be a number, and is %q", variable, text)
	}
	return n
}

// eventually fails the test if something does not come true in time.
func eventually(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("within %v: not %s", patience, what)
		}
	}
}
