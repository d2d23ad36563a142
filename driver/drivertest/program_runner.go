package drivertest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// errUnsupportedConfig: the backend refused the configuration of a program, which is allowed.
var errUnsupportedConfig = errors.New("the backend does not support this configuration")

// A programRunner runs programs on one backend, each on a queue of its own. In virtual time
// each program also has a backend of its own; on the real clock they share one, because opening
// it may be slow.
type programRunner struct {
	t       *testing.T
	backend Backend
	shared  driver.Opener
	queues  int
}

func newProgramRunner(t *testing.T, b Backend) *programRunner {
	return &programRunner{t: t, backend: b}
}

// run runs a program and returns the results of all operations.
func (s *programRunner) run(p program) (results []result, err error) {
	if s.backend.Virtual {
		synctest.Test(s.t, func(t *testing.T) {
			opener := s.backend.Open(t)
			results, opener, err = s.runOn(t, opener, randomQueueName, p)
			if err == nil { // otherwise closing it may fail too
				closeOpener(t, opener)
			}
		})
		return results, err
	}
	if s.shared == nil {
		s.shared = s.backend.Open(s.t)
	}
	s.queues++
	name := fmt.Sprintf("%s-%d", randomQueueName, s.queues)
	results, s.shared, err = s.runOn(s.t, s.shared, name, p)
	if admin, ok := s.shared.(driver.Admin); ok && err == nil {
		err = admin.DeleteQueue(s.t.Context(), name)
		if p.Other != nil && err == nil {
			err = admin.DeleteQueue(s.t.Context(), otherName(name))
		}
	}
	return results, err
}

// runOn runs a program on a new queue. It returns the opener that is in use after the last
// restart.
func (s *programRunner) runOn(t *testing.T, opener driver.Opener, name string, p program) ([]result, driver.Opener, error) {
	ctx := t.Context()
	if err := configureQueues(ctx, opener, name, p); err != nil {
		return nil, opener, err
	}
	queue, other, err := openQueues(ctx, opener, name, p)
	if err != nil {
		return nil, opener, err
	}
	executor := newExecutor(name, queue, time.Now())
	executor.other = other
	executor.untimed = p.Untimed
	executor.configure = func(ctx context.Context, config driver.Config) error {
		return opener.(driver.Admin).ConfigureQueue(ctx, name, complete(config))
	}
	if s.backend.Restart != nil {
		executor.restart = func(how Crash) (queue, other driver.Queue, err error) {
			gathered := &gatherer{TB: t}
			opener = s.backend.Restart(gathered, opener, how)
			gathered.report()
			return openQueues(ctx, opener, name, p)
		}
	}
	results := make([]result, len(p.Operations))
	for i, op := range p.Operations {
		if results[i], err = runSafely(ctx, executor, op); err != nil {
			return nil, opener, fmt.Errorf("operation %d %w\n\n%s", i+1, err, listing(p, i+1, results[:i]))
		}
	}
	if executor.other != nil {
		err = executor.other.Close()
	}
	return results, opener, errors.Join(err, executor.queue.Close())
}

// configureQueues creates the queues of a program, if the opener has Admin.
func configureQueues(ctx context.Context, opener driver.Opener, name string, p program) error {
	admin, ok := opener.(driver.Admin)
	if !ok {
		return nil
	}
	configs := map[string]driver.Config{name: p.Config}
	if p.Other != nil {
		configs[otherName(name)] = *p.Other
	}
	for name, config := range configs {
		err := admin.ConfigureQueue(ctx, name, complete(config))
		if errors.Is(err, driver.ErrUnsupported) {
			return errUnsupportedConfig
		}
		if err != nil {
			return fmt.Errorf("%v: %w", createOperation{config}, err)
		}
	}
	return nil
}

// openQueues opens the queues of a program.
func openQueues(ctx context.Context, opener driver.Opener, name string, p program) (queue, other driver.Queue, err error) {
	queue, err = opener.OpenQueue(ctx, name)
	if err == nil && p.Other != nil {
		other, err = opener.OpenQueue(ctx, otherName(name))
	}
	return queue, other, err
}

// runSafely turns a panic into an error, so that its program is shortened and printed like any
// other.
func runSafely(ctx context.Context, p *executor, op operation) (r result, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panics: %v\n%s", reason, callers())
		}
	}()
	return p.run(ctx, op), nil
}

// A gatherer turns the failures of a restart into a panic, for runSafely.
type gatherer struct {
	testing.TB
	failures []string
}

func (g *gatherer) Error(args ...any)                 { g.failures = append(g.failures, fmt.Sprint(args...)) }
func (g *gatherer) Errorf(format string, args ...any) { g.Error(fmt.Sprintf(format, args...)) }

func (g *gatherer) Fatal(args ...any) {
	g.Error(args...)
	g.report()
}

func (g *gatherer) Fatalf(format string, args ...any) { g.Fatal(fmt.Sprintf(format, args...)) }

func (g *gatherer) report() {
	if len(g.failures) > 0 {
		panic(strings.Join(g.failures, "\n")) // the restart may be in the midst of Fatal, which does not return
	}
}

// callers lists the function that panicked and its callers. Unlike debug.Stack it prints
// nothing that differs from run to run, which rapid would report as flaky.
func callers() string {
	var text strings.Builder
	frames := runtime.CallersFrames(func() []uintptr {
		counters := make([]uintptr, 16)
		return counters[:runtime.Callers(5, counters)] // below recover and panic
	}())
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&text, "\t%s (%s:%d)\n", frame.Function, filepath.Base(frame.File), frame.Line)
		if !more || strings.HasSuffix(frame.Function, ".runSafely") {
			return text.String()
		}
	}
}

// abilityOf returns what random programs can use of a backend. It skips the test if their
// results could not be checked.
func abilityOf(t *testing.T, b Backend) (a ability) {
	t.Helper()
	look := func(t *testing.T) {
		opener := b.Open(t)
		queue, err := opener.OpenQueue(t.Context(), randomQueueName)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		a.traits = queue.Traits()
		_, a.admin = opener.(driver.Admin)
		a.drop = a.admin && dropsExpired(t, opener.(driver.Admin))
		a.fair = a.admin && groupsFairly(t, opener.(driver.Admin))
		a.limits = a.fair && limitsGroups(t, opener.(driver.Admin))
		if err := queue.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		closeOpener(t, opener)
	}
	if b.Virtual {
		synctest.Test(t, look)
	} else {
		look(t)
	}
	a.untimed = !b.Virtual
	if b.Restart != nil {
		a.crashes = b.Crashes
		if a.crashes == nil {
			a.crashes = []Crash{CrashClean}
		}
	}
	if a.traits.Ordering == driver.OrderingNone || !a.traits.ExactStats {
		t.Skip("the model keeps order and counts exactly, which this backend does not promise")
	}
	return a
}

// dropsExpired reports whether a backend supports Config.DropExpired.
func dropsExpired(t *testing.T, admin driver.Admin) bool {
	if err := admin.ConfigureQueue(t.Context(), randomQueueName, driver.Config{DropExpired: true}); err != nil {
		return false
	}
	config, err := admin.QueueConfig(t.Context(), randomQueueName)
	return err == nil && config.DropExpired
}

// groupsFairly reports whether a backend supports Config.FairGroups.
func groupsFairly(t *testing.T, admin driver.Admin) bool {
	const name = randomQueueName + "-fair"
	if err := admin.ConfigureQueue(t.Context(), name, driver.Config{FairGroups: true}); err != nil {
		return false
	}
	config, err := admin.QueueConfig(t.Context(), name)
	return err == nil && config.FairGroups
}

// limitsGroups reports whether a backend supports Config.GroupLimits.
func limitsGroups(t *testing.T, admin driver.Admin) bool {
	err := admin.ConfigureQueue(t.Context(), randomQueueName+"-limited", driver.Config{FairGroups: true, GroupLimits: "in-flight=1"})
	return err == nil
}

func closeOpener(t testing.TB, opener driver.Opener) {
	if c, ok := opener.(interface{ Close() error }); ok {
		if err := c.Close(); err != nil {
			t.Errorf("close the backend: %v", err)
		}
	}
}
