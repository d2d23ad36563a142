package drivertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A Crash is a way to take a backend down.
type Crash int

// The crashes, mildest first.
const (
	// CrashClean closes the backend in order.
	CrashClean Crash = iota
	// CrashKill kills the process: data given to the operating system survives.
	CrashKill
	// CrashPower cuts the power: data that was not synced may be lost.
	CrashPower
)

// String names the crash as the titles of cases do.
func (c Crash) String() string {
	switch c {
	case CrashClean:
		return "a clean restart"
	case CrashKill:
		return "a kill"
	case CrashPower:
		return "a power cut"
	}
	return "an unknown crash"
}

// A Backend describes a backend to the suite.
type Backend struct {
	// Open returns a fresh and empty backend. It registers its clean-up with t.Cleanup. The
	// suite closes an opener with a method Close() error; closing it a second time must be
	// harmless.
	Open func(t testing.TB) driver.Opener
	// OpenWithClock is Open for a backend that reads the wall clock by calling wall, at any time and
	// in any goroutine; so does what Restart makes of it. Cases of TIME-0 set that clock. Nil means
	// that the wall clock of the backend cannot be set.
	OpenWithClock func(t testing.TB, wall func() time.Time) driver.Opener
	// Restart takes the backend down and brings it up again. It also cleans up old. Nil means
	// that messages do not survive.
	Restart func(t testing.TB, old driver.Opener, how Crash) driver.Opener
	// Crashes are the ones that Restart supports; nil means only CrashClean.
	Crashes []Crash
	// Virtual reports that all cases can run inside a synctest bubble: no sockets, no child
	// processes, no goroutines that outlive the opener.
	Virtual bool
	// Only says which cases Run runs, by their names as in Cases; nil means all. It is asked before
	// each case, when those before have ended.
	Only func(name string) bool
	// ByName reports that handles are only names, as over HTTP: a handle on a deleted queue
	// works on the next queue of that name.
	ByName bool
	// Tick is the suite's unit of time when not Virtual, for backends that count in coarser
	// steps; 0 means 200 ms.
	Tick time.Duration
}

// survives reports whether Restart supports a crash.
func (b Backend) survives(how Crash) bool {
	if b.Restart == nil {
		return false
	}
	if b.Crashes == nil {
		return how == CrashClean
	}
	return slices.Contains(b.Crashes, how)
}

// Run runs every case against b, each as a subtest called "ID/title" with a
// backend of its own.
func Run(t *testing.T, b Backend) {
	t.Helper()
	for _, c := range allCases() {
		name := c.id + "/" + c.title
		if b.Only != nil && !b.Only(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			switch {
			case c.repeats:
				volume.InFull(t)
			case !b.Virtual: // in virtual time a case may try for a race more often without the race detector
				volume.Whole(t)
			}
			if b.Virtual {
				synctest.Test(t, func(t *testing.T) { c.check(t, b) })
			} else {
				c.check(t, b)
			}
		})
	}
}

// Cases lists all cases in the order in which Run runs them: the rule that each proves, a
// slash, and its claim.
func Cases() []string {
	var names []string
	for _, c := range allCases() {
		names = append(names, c.id+"/"+c.title)
	}
	return names
}

// A testCase proves one claim about one rule.
type testCase struct {
	id    string
	title string
	// needs are the abilities that the claim depends on; if the backend lacks one, the case
	// checks its refusal instead.
	needs []need
	// config configures the queue under test; nil means the backend's default.
	config func(e *env) driver.Config
	run    func(e *env, q driver.Queue)
	// real says that the case is about more than the model has: goroutines that wait, handles,
	// and queues that get the dead letters of others.
	real bool
	// setsClock says that the case sets the wall clock of the backend. It needs needClock.
	setsClock bool
	// forwards says that dead letters of the queue go to another, where they are new messages.
	forwards bool
	// repeats says that the case does the same thousands of times, or what similar cases do; see volume.InFull.
	repeats bool
}

// always returns a config that does not depend on time.
func always(config driver.Config) func(*env) driver.Config {
	return func(*env) driver.Config { return config }
}

func (c testCase) check(t *testing.T, b Backend) {
	if b.Virtual {
		c.prove(newEnv(t, b, c))
		return
	}
	c.onRealClock(b).check(t, b.Tick, 1)
}

// onRealClock returns the attempts at the case.
func (c testCase) onRealClock(b Backend) attempts {
	return func(t *testing.T, tick time.Duration) (*env, func()) {
		b.Tick = tick
		e := newEnv(t, b, c)
		return e, func() { c.prove(e) }
	}
}

// prove runs the case in an environment.
func (c testCase) prove(e *env) {
	q := e.prepare(c.config)
	if q == nil {
		return
	}
	for _, need := range c.needs {
		if !need.met(e, q) {
			need.refused(e, q)
			return
		}
	}
	c.run(e, q)
}

// allCases is a function and not a variable, so that importing the package costs nothing.
func allCases() []testCase {
	return slices.Concat(
		storyCases(),
		sendCases, dedupCases,
		receiveCases, wakeCases, closeCases,
		visibilityCases, receiptCases, lateAckCases, settleCases,
		orderCases, groupCases, fairCases, shardCases,
		countCases, peekCases, editCases, releaseCases, scheduleCases,
		defaultCases, deadLetterCases, redriveCases, deadLetterToCases, deadLetterCircleCases,
		moveCases, endingCases, clockCases, ttlCases, priorityCases, uniqueCases, groupLimitCases,
		limitCases, adminCases, annotationCases,
		concurrencyCases, raceCases,
		restartCases(),
	)
}
