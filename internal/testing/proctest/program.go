package proctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
// calling package only, and are rebuilt when they are out of date.
func Build(name string, programs ...string) (dir string, err error) {
	if dir, err = Cache(name); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, module+"/cmd/"+program)
	}
	if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("proctest: build %v: %w\n%s", programs, err, text)
	}
	return dir, nil
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
