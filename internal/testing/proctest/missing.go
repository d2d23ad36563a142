package proctest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// requireVariable is the environment variable that turns skips of End into failures. The
// Makefile sets it for all its targets.
const requireVariable = "MAILBOX_REQUIRE_SERVERS"

// A MissingError says that a program is not installed.
type MissingError struct {
	Program string
	Err     error // may be nil
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("needs %s: make setup installs it", e.Program)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// End ends a test that cannot run because of err: it skips the test if a program is missing
// that this machine does not have to have, and fails it otherwise.
func End(t testing.TB, err error) {
	t.Helper()
	missing, ok := errors.AsType[*MissingError](err)
	switch {
	case !ok:
		t.Fatal(err)
	case os.Getenv(requireVariable) == "":
		t.Skip(missing)
	default:
		t.Fatal(missing)
	}
}

// LeaveOutExamples skips the examples of a package if err is a MissingError that would skip a
// test; an example cannot skip itself. TestMain calls it.
func LeaveOutExamples(err error) {
	if _, ok := errors.AsType[*MissingError](err); !ok || os.Getenv(requireVariable) != "" {
		return
	}
	flag.Parse()
	const name, examples = "test.skip", "^Example"
	pattern := examples
	if asked := flag.Lookup(name).Value.String(); asked != "" {
		pattern = asked + "|" + examples
	}
	_ = flag.Set(name, pattern) // every test binary has the flag
	fmt.Fprintln(os.Stderr, "examples are skipped:", err)
}

// Find returns the path of a program. It ends the test if there is none, see End.
func Find(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		End(t, &MissingError{program, nil})
	}
	return path
}
