package faulty_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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
	"github.com/mailboxmq/mailbox/driver/drivertest/faulty"
	"github.com/mailboxmq/mailbox/membox"
)

// nameVariable tells a child process which saboteur to test.
const nameVariable = "MAILBOX_SABOTEUR"

// backendOf is a memory backend with a wrapper, which stands in for a durable
// one: a restart wraps the same backend again.
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
		Restart: func(_ testing.TB, old driver.Opener, _ drivertest.Crash) driver.Opener {
			mu.Lock()
			inner := wrapped[old]
			mu.Unlock()
			return put(inner)
		},
		Crashes: []drivertest.Crash{drivertest.CrashClean, drivertest.CrashKill, drivertest.CrashPower},
	}
}

// judge runs everything that can find a backend out. Random programs and a
// crowd take longer than the cases, and so are left to those who need them.
func judge(t *testing.T, backend drivertest.Backend, everything bool) {
	t.Run("suite", func(t *testing.T) { drivertest.Run(t, backend) })
	if everything {
		t.Run("random", func(t *testing.T) { drivertest.RunRandom(t, backend, 10_000) })
		t.Run("concurrent", func(t *testing.T) { drivertest.RunConcurrent(t, backend, drivertest.Load{Messages: 4_000}) })
	}
}

func TestPassThroughPasses(t *testing.T) {
	judge(t, backendOf(faulty.PassThrough), true)
}

// TestSabotagedBackend is meant to fail, in a child process.
func TestSabotagedBackend(t *testing.T) {
	name := os.Getenv(nameVariable)
	if name == "" {
		t.Skipf("it is run by TestEverySaboteurIsCaught; to see one saboteur fail, set %s to its name", nameVariable)
	}
	all := faulty.All()
	i := slices.IndexFunc(all, func(s faulty.Saboteur) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no saboteur called %q", name)
	}
	judge(t, backendOf(all[i].Wrap), all[i].Rare)
}

func TestEverySaboteurIsCaught(t *testing.T) {
	for _, saboteur := range faulty.All() {
		t.Run(fmt.Sprintf("%s (%s)", saboteur.Name, saboteur.Breaks), func(t *testing.T) {
			t.Parallel()
			verdict := run(t, saboteur)
			rules := append([]string{saboteur.Breaks}, saboteur.Also...)
			by := verdict.convictions(rules)
			switch {
			case verdict.hung && !saboteur.Hangs:
				t.Errorf("%s\nthe suite hung in %s", saboteur.What, verdict.running)
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

// A verdict is what the tests said about a saboteur.
type verdict struct {
	// failed are the cases that failed, "VIS-2/title", and what else did:
	// "random", "concurrent: VIS-2".
	failed []string
	// running is the case that was running when the time was over.
	running string
	hung    bool
}

// convictions are those failures that are about one of these rules. Random
// programs do not say what rule is broken, and count for any.
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
	violationLine = regexp.MustCompile(`^\s*([A-Z]+-\d+): message `)
)

// run lets a child process judge a saboteur. It has to be another process
// because a failing test fails the test it is part of.
func run(t *testing.T, saboteur faulty.Saboteur) (v verdict) {
	t.Helper()
	limit := time.Minute
	if saboteur.Hangs {
		limit = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(ctx, executable,
		"-test.run=^TestSabotagedBackend$", "-test.v=test2json",
		"-rapid.shrinktime=0s", "-rapid.nofailfile")
	child.Env = append(os.Environ(), nameVariable+"="+saboteur.Name)
	output, err := child.CombinedOutput()
	v.hung = ctx.Err() != nil
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("start the child: %v", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		line := strings.TrimPrefix(lines.Text(), "\x16") // test2json's mark
		if match := startLine.FindStringSubmatch(line); match != nil {
			v.running = readable(match[1])
		}
		if match := failLine.FindStringSubmatch(line); match != nil {
			v.failed = append(v.failed, readable(match[1]+match[2]))
		}
		if match := violationLine.FindStringSubmatch(line); match != nil {
			if found := "concurrent: " + match[1]; !slices.Contains(v.failed, found) {
				v.failed = append(v.failed, found)
			}
		}
	}
	if (err == nil) != (len(v.failed) == 0) && !v.hung {
		t.Fatalf("the child ended with %v, and these failures were read: %q\n%s", err, v.failed, output)
	}
	return v
}

// readable undoes what package testing does to names.
func readable(name string) string { return strings.ReplaceAll(name, "_", " ") }
