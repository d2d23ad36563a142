package faulty_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/testing/faulty"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/internal/testing/workertest"
	"github.com/mailboxmq/mailbox/membox"
)

// The cases of the rules that a saboteur breaks are enough to catch it. TestPassThroughPasses
// shows that all cases pass on correct backends.
var whole = flag.Bool("whole", false, "run all cases against each saboteur, which takes minutes")

// nameVariable tells a child process which saboteur to test.
const nameVariable = "MAILBOX_SABOTEUR"

// backendOf returns a memory backend in a wrapper. It stands in for a durable one: a restart
// wraps the same backend again.
func backendOf(wrap func(driver.Opener) driver.Opener) drivertest.Backend {
	var mu sync.Mutex
	wrapped := make(map[driver.Opener]driver.Opener)
	put := func(inner driver.Opener) driver.Opener {
		mu.Lock()
		defer mu.Unlock()
		outer := wrap(inner)
		wrapped[outer] = inner
		return outer
	}
	return drivertest.Backend{
		Virtual: true,
		Open:    func(testing.TB) driver.Opener { return put(membox.New(nil)) },
		OpenWithClock: func(_ testing.TB, wall func() time.Time) driver.Opener {
			return put(host.New(host.Options{Wall: wall}))
		},
		Restart: func(_ testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
			mu.Lock()
			inner := wrapped[old]
			mu.Unlock()
			return put(inner)
		},
		Crashes: []drivertest.Crash{drivertest.CrashClean, drivertest.CrashKill, drivertest.CrashPower},
	}
}

// judges are the test runs that can catch a saboteur, in the order in which they are tried.
var judges = []struct {
	name string
	try  func(t *testing.T, backend drivertest.Backend)
}{
	{"suite", func(t *testing.T, backend drivertest.Backend) {
		drivertest.Run(t, backend)
		workertest.Run(t, backend)
	}},
	{"concurrent", func(t *testing.T, backend drivertest.Backend) {
		drivertest.RunConcurrent(t, backend, drivertest.Load{Messages: 4_000})
	}},
	{"random", func(t *testing.T, backend drivertest.Backend) { drivertest.RunRandom(t, backend, 20_000) }},
}

func TestPassThroughPasses(t *testing.T) {
	volume.InFull(t)
	for _, judge := range judges {
		t.Run(judge.name, func(t *testing.T) { judge.try(t, backendOf(faulty.PassThrough)) })
	}
}

// TestSabotagedBackend fails, as it must, in a child process.
func TestSabotagedBackend(t *testing.T) {
	name := os.Getenv(nameVariable)
	if name == "" {
		t.Skipf("run by TestEverySaboteurIsCaught; to see one saboteur fail, set %s to its name", nameVariable)
	}
	all := faulty.All()
	i := slices.IndexFunc(all, func(s faulty.Saboteur) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("unknown saboteur %q", name)
	}
	for _, judge := range judges {
		t.Run(judge.name, func(t *testing.T) { judge.try(t, backendOf(all[i].Wrap)) })
		if t.Failed() && !*whole || !all[i].Rare {
			return // one failure is enough
		}
	}
}

func TestEverySaboteurIsCaught(t *testing.T) {
	volume.InFull(t)
	for _, saboteur := range faulty.All() {
		t.Run(fmt.Sprintf("%s (%s)", saboteur.Name, saboteur.Breaks), func(t *testing.T) {
			t.Parallel()
			rules := append([]string{saboteur.Breaks}, saboteur.Also...)
			verdict := run(t, saboteur, rules)
			by := verdict.convictions(rules)
			switch {
			case verdict.hung && !saboteur.Hangs:
				t.Errorf("%s\nthe suite hung in %s", saboteur.What, verdict.running)
			case verdict.panic != "":
				t.Errorf("%s\nthe suite panics instead of failing in %s: %s", saboteur.What, verdict.running, verdict.panic)
			case len(by) > 0:
				t.Logf("caught by %s", strings.Join(by, "\n          "))
			case len(verdict.failed) > 0:
				t.Errorf("%s\nno case of %v caught it, only\n%s", saboteur.What, rules, strings.Join(verdict.failed, "\n"))
			default:
				t.Errorf("%s\nnothing caught it", saboteur.What)
			}
		})
	}
}

// A verdict is the result of the tests of one saboteur.
type verdict struct {
	// failed are the failed cases, such as "VIS-2/title", and other failures: "random",
	// "concurrent: VIS-2".
	failed []string
	// running is the case that was running when the time ran out.
	running string
	hung    bool
	// panic is the value that the child panicked with, if it did. It ends the suite, so later
	// cases have no result.
	panic string
}

// convictions returns the failures that concern one of the rules. A failed random program does
// not name a rule, and counts for any.
func (v verdict) convictions(rules []string) (by []string) {
	failed := v.failed
	if v.hung {
		failed = append(failed, v.running)
	}
	for _, failure := range failed {
		rule, _, _ := strings.Cut(strings.TrimPrefix(failure, "concurrent: "), "/")
		if failure == "random" || slices.Contains(rules, rule) {
			by = append(by, failure)
		}
	}
	return by
}

var (
	startLine     = regexp.MustCompile(`^=== RUN\s+TestSabotagedBackend/suite/(\S+/\S+)`)
	failLine      = regexp.MustCompile(`^\s*--- FAIL: TestSabotagedBackend/(?:suite/(\S+/\S+)|(random)) `)
	panicLine     = regexp.MustCompile(`^panic: (.+)`)
	violationLine = regexp.MustCompile(`^\s*([A-Z]+-\d+): message `)
)

// run tests a saboteur in a child process with the cases of the given rules. It must be another
// process because a failing subtest fails its parent.
func run(t *testing.T, saboteur faulty.Saboteur, rules []string) (v verdict) {
	t.Helper()
	limit := 5 * time.Minute
	if saboteur.Hangs {
		limit = time.Minute
	}
	cases := "/^(" + strings.Join(rules, "|") + ")$"
	if *whole {
		cases = ""
		limit *= 3
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(ctx, executable,
		"-test.run=^TestSabotagedBackend$/^(suite|concurrent|random)$"+cases, "-test.v=test2json",
		"-rapid.shrinktime=0s", "-rapid.nofailfile", fmt.Sprintf("-whole=%v", *whole))
	child.Env = append(os.Environ(), nameVariable+"="+saboteur.Name, volume.Variable+"=") // more would only be slower
	output, err := child.CombinedOutput()
	v.hung = ctx.Err() != nil
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("start the child: %v", err)
	}
	v.read(string(output))
	if (err == nil) != (len(v.failed) == 0) && !v.hung {
		t.Fatalf("child: %v; failures read: %q\n%s", err, v.failed, output)
	}
	if bytes.Contains(output, []byte("WARNING: DATA RACE")) {
		t.Errorf("the saboteur, or the suite, has a data race:\n%s", output)
	}
	return v
}

// read parses the output of a child.
func (v *verdict) read(output string) {
	for line := range strings.Lines(output) {
		line = strings.TrimPrefix(line, "\x16") // the marker of test2json
		if match := startLine.FindStringSubmatch(line); match != nil {
			v.running = readable(match[1])
		}
		if match := failLine.FindStringSubmatch(line); match != nil {
			v.failed = append(v.failed, readable(match[1]+match[2]))
		}
		if match := panicLine.FindStringSubmatch(line); match != nil && v.panic == "" {
			v.panic = match[1]
		}
		if match := violationLine.FindStringSubmatch(line); match != nil {
			if found := "concurrent: " + match[1]; !slices.Contains(v.failed, found) {
				v.failed = append(v.failed, found)
			}
		}
	}
}

// readable undoes the escaping of package testing.
func readable(name string) string { return strings.ReplaceAll(name, "_", " ") }
