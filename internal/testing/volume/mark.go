package volume

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// repeating has the names of tests that called Repeats.
var repeating sync.Map

// Repeats marks a test that does a part of its volume under the race detector. make test also
// runs it without the race detector.
func Repeats(t testing.TB) { repeating.Store(topLevel(t), true) }

// InFull marks a test, or a part of a test that called Repeats, that has nothing for the race
// detector to find, and skips it there. make test runs it without the race detector.
func InFull(t testing.TB) {
	t.Helper()
	_, part := repeating.Load(topLevel(t))
	if skipped := part || !strings.Contains(t.Name(), "/"); skipped && RaceDetector && !AtLength() {
		t.Skip("it repeats much that the race detector does not need: make test runs it without it")
	}
}

// Whole marks a part of a test that called Repeats that does as much under the race detector as
// without it, and skips it where RestVariable says that the race detector has run it.
func Whole(t testing.TB) {
	t.Helper()
	if _, part := repeating.Load(topLevel(t)); part && !RaceDetector && os.Getenv(RestVariable) != "" {
		t.Skipf("%s is set, so it has run under the race detector", RestVariable)
	}
}

// Alone marks a test that loads the machine, or fails on a loaded one. make test runs it when
// nothing else runs, under the race detector. Its name must be unique in the module.
func Alone(testing.TB) {}

// Measures marks a test that measures memory, allocations or time of a program as users run
// it, and skips it under the race detector. make test runs it when nothing else runs. Its name
// must be unique in the module.
func Measures(t testing.TB) {
	t.Helper()
	if RaceDetector {
		t.Skip("it measures, and the race detector is part of what it would measure: make test runs it without it")
	}
}

func topLevel(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}
