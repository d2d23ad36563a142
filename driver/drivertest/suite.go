package drivertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Crash is a way to go down.
type Crash int

// The crashes, mildest first.
const (
	// CrashClean closes the backend in order.
	CrashClean Crash = iota
	// CrashKill ends the process where it stands: what the operating system
	// was given survives.
	CrashKill
	// CrashPower cuts the power: what was not synced may be gone.
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

// A Backend tells the suite how to get at a backend.
type Backend struct {
	// Open returns a fresh and empty backend. What it needs to clean up it
	// registers with t.Cleanup. An opener with a method Close() error is
	// closed by the suite; closing it a second time must be harmless.
	Open func(t testing.TB) driver.Opener
	// Restart takes the backend down and brings it up again, and answers for
	// whatever is left of old. Nil means that messages do not survive.
	Restart func(t testing.TB, old driver.Opener, how Crash) driver.Opener
	// Crashes are those that Restart can do; nil means only CrashClean.
	Crashes []Crash
	// Virtual says that everything may run inside a synctest bubble: no
	// sockets, no child processes, no goroutines that outlive the opener.
	Virtual bool
	// ByName says that handles are names and nothing else, as over HTTP: a handle on a
	// deleted queue works on the next queue of that name.
	ByName bool
	// Tick is the suite's unit of time when not Virtual, for backends that
	// count in coarser steps; 0 means 200 ms.
	Tick time.Duration
}

// survives reports whether Restart can do this crash.
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
		t.Run(c.id+"/"+c.title, func(t *testing.T) {
			if b.Virtual {
				synctest.Test(t, func(t *testing.T) { c.check(t, b) })
			} else {
				c.check(t, b)
			}
		})
	}
}

// CaseInfo names a case: the rule it proves, and what it claims.
type CaseInfo struct {
	ID    string
	Title string
}

// Cases lists all cases in the order in which Run runs them.
func Cases() []CaseInfo {
	var infos []CaseInfo
	for _, c := range allCases() {
		infos = append(infos, CaseInfo{ID: c.id, Title: c.title})
	}
	return infos
}

// A testCase proves one claim about one rule.
type testCase struct {
	id    string
	title string
	// needs are what the claim is about; where the backend lacks one, its
	// refusal is checked instead of the claim.
	needs []need
	// config makes the queue under test; nil takes the backend's default.
	config func(s *session) driver.Config
	run    func(s *session, q driver.Queue)
}

// always is the config of a case whose config does not depend on time.
func always(config driver.Config) func(*session) driver.Config {
	return func(*session) driver.Config { return config }
}

func (c testCase) check(t *testing.T, b Backend) {
	s := newSession(t, b, c.id)
	q := s.prepare(c.config)
	if q == nil {
		return
	}
	for _, need := range c.needs {
		if !need.met(s, q) {
			need.refused(s, q)
			return
		}
	}
	c.run(s, q)
}

// allCases is a function and not a variable so that importing the package
// costs nothing.
func allCases() []testCase {
	return slices.Concat(
		sendCases, dedupCases,
		receiveCases, wakeCases, closeCases,
		visibilityCases, receiptCases, lateAckCases, lateExtendCases, settleCases,
		orderCases, groupCases, fairCases, shardCases, exactCases,
		countCases, peekCases,
		defaultCases, deadLetterCases, redriveCases, deadLetterToCases, deadLetterCircleCases,
		moveCases, retentionCases, dropCases, endingCases,
		limitCases, adminCases, annotationCases,
		concurrencyCases, raceCases,
		restartCases(),
	)
}
