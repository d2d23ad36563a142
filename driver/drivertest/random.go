package drivertest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// randomQueueName is the name of the queue that random programs run on.
const randomQueueName = "random"

// RunRandom runs random programs on b, about steps operations in all, and on a
// Model, and fails if anything differs: results, order, counts, error codes,
// retry hints, and after every operation the stats. A program that shows a
// difference is made shorter before it is printed, together with the seed that
// repeats it (-rapid.seed).
//
// With b.Virtual each program has its own synctest bubble and plays with time;
// otherwise it runs on the real clock and uses no time that matters. The
// environment overrides steps: MAILBOX_RANDOM_STEPS gives another number, and
// MAILBOX_RANDOM_FOR a duration to go on for.
func RunRandom(t *testing.T, b Backend, steps int) {
	t.Helper()
	b.Restart = nil // it would not help to find out who is wrong
	a := abilityOf(t, b)
	stage := newStage(t, b)
	runPrograms(t, t, a, steps, func(p *plan) error {
		got, err := stage.run(p.Program)
		if err != nil {
			return err
		}
		return compare(p.Program, "the model", p.want, got, !a.untimed)
	})
}

// RunAgainst runs random programs, about steps operations in all, on two
// backends and fails if anything that RunRandom looks at differs. If subject
// has Restart, it is restarted between operations, which must not be seen: so
// a durable backend is held against a volatile one, or against itself.
//
// Crashes that are not clean follow an accepted send; see Backend.Crashes. The
// environment variables of RunRandom work here too.
func RunAgainst(t *testing.T, reference, subject Backend, steps int) {
	t.Helper()
	reference.Restart = nil
	a := abilityOf(t, subject)
	other := abilityOf(t, reference)
	a.untimed = a.untimed || other.untimed
	a.admin = a.admin && other.admin
	a.deadLetters = a.deadLetters && other.deadLetters
	a.peek = a.peek && other.peek
	left, right := newStage(t, reference), newStage(t, subject)
	runPrograms(t, t, a, steps, func(p *plan) error {
		want, err := left.run(p.Program)
		if err != nil {
			return err
		}
		got, err := right.run(p.Program)
		if err != nil {
			return err
		}
		return compare(p.Program, "the reference", want, got, false)
	})
}
