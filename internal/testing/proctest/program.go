package proctest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// module is the path of this module.
const module = "github.com/mailboxmq/mailbox"

// Cache returns a directory, below the root of the module, for files that are built or
// installed once. It may not exist.
func Cache(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".cache", name), nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("proctest: no go.mod in a parent directory")
		}
		dir = above
	}
}

// Build builds programs of this module as they are shipped, without the race detector, and
// returns their directory. They are kept in the cache under name, which must belong to the
// calling package only, and are rebuilt when they are out of date: the commit is not in them,
// so that a commit that does not change them does not link them.
func Build(name string, programs ...string) (dir string, err error) {
	if dir, err = Cache(name); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, module+"/cmd/"+program)
	}
	if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("proctest: build %v: %w\n%s", programs, err, text)
	}
	return dir, nil
}

// FreePort returns a port of TCP that is free. It is below those that the kernel gives to
// listeners and connections of others, which could take it before a program listens, and below
// those of package redistest.
func FreePort(t testing.TB) string {
	t.Helper()
	const lowest, highest = 15_000, 20_000
	for range 100 {
		port := strconv.Itoa(lowest + rand.IntN(highest-lowest))
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("no free port between %d and %d", lowest, highest)
	return ""
}

// Eventually fails the test if holds does not return true in time. Processes have no virtual
// time, so it polls.
func Eventually(t testing.TB, timeout time.Duration, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(timeout); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}
