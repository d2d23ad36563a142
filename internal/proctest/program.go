package proctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// module is the path of this module.
const module = "github.com/mailboxmq/mailbox"

// Cache is a directory, below the root of the module, for what is made or installed
// once. It may not be there.
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
			return "", errors.New("proctest: there is no go.mod above this directory")
		}
		dir = above
	}
}

// Build builds programs of this module as they are shipped, without the race detector,
// and returns the directory that they are in. They are kept in the cache under a name,
// which is to be one of the package's own, and built again when they are out of date.
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
		return "", fmt.Errorf("proctest: %v cannot be built: %w\n%s", programs, err, text)
	}
	return dir, nil
}

// Number is what a variable of the environment says, or else a number that is fit for
// every day.
func Number(t testing.TB, variable string, everyday int) int {
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

// Eventually fails the test if something does not come true in time. Processes have no
// virtual time, so it asks again and again.
func Eventually(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("within %v: not %s", patience, what)
		}
	}
}
