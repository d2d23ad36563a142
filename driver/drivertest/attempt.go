package drivertest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// attempts returns the environment of an attempt at a case on the real clock, and runs the case in it.
type attempts func(t *testing.T, tick time.Duration) (e *env, prove func())

// maxAttempts is how often a case runs on a machine that is too slow for it, and longerTicks how much
// longer the ticks of each attempt are.
const (
	maxAttempts = 3
	longerTicks = 4
)

// check proves a case. An attempt that was too slow for a result is repeated in a subtest, with longer
// ticks.
func (a attempts) check(t *testing.T, tick time.Duration, attempt int) {
	again := a.try(t, tick, attempt)
	if again == 0 {
		return
	}
	t.Run(fmt.Sprintf("attempt %d", attempt+1), func(t *testing.T) { a.check(t, again, attempt+1) })
}

// try makes one attempt. It returns the tick of the next one, or 0 if this one has a result.
func (a attempts) try(t *testing.T, tick time.Duration, attempt int) (again time.Duration) {
	e, prove := a(t, tick)
	e.mayRepeat = attempt < maxAttempts
	var proving sync.WaitGroup
	proving.Go(prove) // a goroutine that an attempt without a result can end
	proving.Wait()
	if e.inconclusive == "" {
		return 0
	}
	e.close()
	again = longerTicks * e.unit
	t.Logf("%s: again with ticks of %v", e.inconclusive, again)
	return again
}

// lost returns how long the case has run without a plan: in virtual time not at all, and on the
// real clock the time that its operations took, and that the machine or a server stood still.
func (e *env) lost() time.Duration { return time.Since(e.began) - e.planned }

// mayBeSlow reports whether a failure can come from a slow machine and not from the backend: a case
// that uses time has lost so much that a state may have passed before the case looked at it. The last
// attempt counts in any case, so a defect that does not depend on time fails all attempts.
func (e *env) mayBeSlow() bool { return e.mayRepeat && e.timed.Load() && e.lost() > e.unit/4 }

// repeat ends the attempt at a case without a result.
func (e *env) repeat(why string) {
	e.inconclusive = why
	runtime.Goexit()
}

// tooSlow ends an attempt that a slow machine has spoiled. The last one skips the case.
func (e *env) tooSlow(format string, args ...any) {
	e.t.Helper()
	why := "the machine is too slow: " + fmt.Sprintf(format, args...)
	if e.mayRepeat {
		e.repeat(why)
	}
	e.t.Skip(why)
}
