package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The outcomes of a bug.
const (
	caught   = "caught"
	survived = "survived"
	broken   = "broken"   // it does not compile
	doubtful = "doubtful" // the test that failed does so without the bug too, or the time was over
)

// A bugResult is what became of a bug.
type bugResult struct {
	ID      string
	Outcome string
	Test    string  // the first that failed, with its package
	Seconds float64 // from the start of that package's tests to the failure, or of all tests
	Patch   string  // identifies what was run, so that a bug that was changed is run again
	place
}

// seed writes the files that a bug changes beside the tree, and returns an overlay for the Go
// command: the tree itself stays as it is, and so does the build cache of everything else.
func (b *bug) seed(root, folder string) (overlay string, err error) {
	changed, err := b.apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for name, text := range changed {
		to := filepath.Join(folder, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	overlay = filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// run runs the tests of a bug until one fails: those that match only, an empty pattern matching
// all. skip is a pattern of tests that are left out.
func (b *bug) run(root, only, skip string) (result bugResult, err error) {
	folder, err := os.MkdirTemp("", "lab")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // PostgreSQL runs as another user
		return result, err
	}
	overlay, err := b.seed(root, folder)
	if err != nil {
		return result, err
	}
	args := append([]string{"test", "-json", "-count=1", "-vet=off", "-p=1", "-timeout=60m", "-ldflags=-s -w", "-run", only, "-skip", skip}, b.Tests...)
	command := exec.Command("go", args...)
	command.Dir = root
	// In the environment, because some tests build programs. Test servers die with their test.
	command.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay, "TMPDIR="+folder, "MAILBOX_REQUIRE_SERVERS=1")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := command.StdoutPipe()
	if err != nil {
		return result, err
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return result, err
	}
	result = watch(bufio.NewScanner(output))
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // the first failure is enough
	_ = command.Wait()
	if result.Outcome == "" {
		return result, fmt.Errorf("bug %s: go test said nothing", b.ID)
	}
	result.ID, result.Patch = b.ID, b.patch()
	if result.Outcome == caught && !passes(root, result.Test) {
		result.Outcome = doubtful
	}
	return result, nil
}

// passes runs a test without a bug.
func passes(root, test string) bool {
	folder, name, _ := strings.Cut(test, " ")
	name, _, _ = strings.Cut(name, "/")
	command := exec.Command("go", "test", "-count=1", "-vet=off", "-ldflags=-s -w", "-run", "^"+name+"$", "./"+folder)
	command.Dir = root
	command.Env = append(os.Environ(), "MAILBOX_REQUIRE_SERVERS=1")
	return command.Run() == nil
}

// patch identifies what the bug does and which tests must find it.
func (b *bug) patch() string {
	text := strings.Join(b.Tests, " ")
	for _, e := range b.Edits {
		text += "\n" + e.File + "\n" + e.Old + "=>\n" + e.New
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:12]
}

// watch reads the events of go test -json up to the first failure.
func watch(lines *bufio.Scanner) (result bugResult) {
	lines.Buffer(nil, 16<<20)
	began, started, late := time.Now(), make(map[string]time.Time), false
	for lines.Scan() {
		var event struct{ Action, Package, Test, Output, FailedBuild string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue
		}
		switch event.Action {
		case "start":
			started[event.Package] = time.Now()
			result.Outcome = survived
		case "output":
			late = late || strings.HasPrefix(event.Output, "panic: test timed out")
		case "build-fail":
			return bugResult{Outcome: broken}
		case "fail":
			if event.FailedBuild != "" {
				return bugResult{Outcome: broken}
			}
			_, short, _ := strings.Cut(event.Package, "/mailbox/")
			test, outcome := event.Test, caught
			if test == "" {
				test = "(the process ended)"
			}
			if late { // on a busy machine all tests may take longer
				outcome = doubtful
			}
			return bugResult{Outcome: outcome, Test: short + " " + test, Seconds: seconds(started[event.Package])}
		}
	}
	result.Seconds = seconds(began)
	return result
}

// seconds returns the time since an event, rounded to what matters.
func seconds(since time.Time) float64 {
	return time.Since(since).Round(10 * time.Millisecond).Seconds()
}
