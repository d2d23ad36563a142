package volume

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Variable is the environment variable that sets the volume.
const Variable = "MAILBOX_VOLUME"

// SeedVariable is the environment variable that sets the first seed of tests that ask [Seed].
const SeedVariable = "MAILBOX_SEED"

// RestVariable is the environment variable that leaves out what ran whole under the race detector.
const RestVariable = "MAILBOX_REST"

// soak is the value of Variable for everything at full volume.
const soak = "soak"

// Of returns how many of n are done: all, or an eighth under the race detector at the
// everyday volume.
func Of(n int) int { return Part(n, 8) }

// Within returns how many of n a part of a test does, for code that many tests share: as many as
// Of in a test that called Repeats, and all in others.
func Within(t testing.TB, n int) int {
	if _, marked := repeating.Load(topLevel(t)); marked {
		return Of(n)
	}
	return n
}

// Part returns n, or n divided by divisor and rounded up under the race detector at the everyday
// volume.
func Part(n, divisor int) int { return (n + Stride(divisor) - 1) / Stride(divisor) }

// Stride returns the step through many similar cases: step under the race detector at the
// everyday volume, and 1 otherwise.
func Stride(step int) int {
	if RaceDetector && !AtLength() {
		return step
	}
	return 1
}

// AtLength reports whether tests do more than every day.
func AtLength() bool { return os.Getenv(Variable) != "" }

// Count returns how often a test repeats something: everyday, or soaking in a soak, or the
// number that Variable names.
func Count(t testing.TB, everyday, soaking int) int {
	t.Helper()
	switch text := os.Getenv(Variable); text {
	case "":
		return everyday
	case soak:
		return soaking
	default:
		n, err := number(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// Seed returns the first seed of a test that tries many: 1, or that of SeedVariable, so that another
// run tries others.
func Seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv(SeedVariable)
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seed < 1 {
		t.Fatalf("%s is %q; set it to a number above 0", SeedVariable, text)
	}
	return seed
}

// Duration returns how long a test runs: everyday, or soaking in a soak, or as Variable says.
func Duration(t testing.TB, everyday, soaking time.Duration) time.Duration {
	t.Helper()
	switch text := os.Getenv(Variable); text {
	case "":
		return everyday
	case soak:
		return soaking
	default:
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d
		}
		n, err := number(text)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second
	}
}

// Steps returns the length of a run of random programs, which is counted in steps or in time:
// everyday steps, or soaking in a soak, or what Variable says. One of the results is 0.
func Steps(t testing.TB, everyday, soaking int) (int, time.Duration) {
	t.Helper()
	if d, err := time.ParseDuration(os.Getenv(Variable)); err == nil && d > 0 {
		return 0, d
	}
	return Count(t, everyday, soaking), 0
}

func number(text string) (int, error) {
	n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: invalid value %q; want %s, a positive number, or a duration in a test that runs for a time", Variable, text, soak)
	}
	return n, nil
}

// OnlyAtLength skips a test that takes too long for every day.
func OnlyAtLength(t testing.TB, why string) {
	t.Helper()
	if !AtLength() {
		t.Skipf("%s: make soak runs it, or %s=%s", why, Variable, soak)
	}
}
