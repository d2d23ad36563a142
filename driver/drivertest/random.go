package drivertest

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// randomQueueName is the name of the queue that random programs run on.
const randomQueueName = "random"

// RunRandom runs random programs on b and on a Model, about steps operations in all, and fails
// if anything differs: results, order, counts, error codes, retry hints, and after every
// operation the stats. A program that shows a difference is shortened before it is printed,
// together with the seed that repeats it (-rapid.seed).
//
// With b.Virtual each program runs in its own synctest bubble and uses time; otherwise it runs
// on the real clock and does not depend on time. The environment variable MAILBOX_VOLUME
// overrides steps with another number, or with a duration to run for, such as 10m; with
// "soak" it is 50 times steps.
func RunRandom(t *testing.T, b Backend, steps int) {
	t.Helper()
	b.Restart = nil // the comparison needs no restarts
	a := abilityOf(t, b)
	runner := newProgramRunner(t, b)
	runPrograms(t, t, a, steps, func(p *plan) error {
		got, err := runner.run(p.program)
		if err != nil {
			return err
		}
		return compare(p.program, "the model", p.want, got, !a.untimed)
	})
}

// RunAgainst runs random programs, about steps operations in all, on two backends and fails if
// anything that RunRandom compares differs. If subject has Restart, it is restarted between
// operations, which must not show: so a durable backend is compared with a volatile one, or
// with itself.
//
// Crashes that are not clean follow a successful send; see Backend.Crashes. The environment
// variable of RunRandom works here too.
func RunAgainst(t *testing.T, reference, subject Backend, steps int) {
	t.Helper()
	reference.Restart = nil
	a := abilityOf(t, subject)
	other := abilityOf(t, reference)
	a.untimed = a.untimed || other.untimed
	a.admin = a.admin && other.admin
	a.traits.DeadLetters = a.traits.DeadLetters && other.traits.DeadLetters
	a.traits.Peek = a.traits.Peek && other.traits.Peek
	a.traits.Move = a.traits.Move && other.traits.Move
	a.traits.LateAck = a.traits.LateAck && other.traits.LateAck
	a.traits.Schedules = a.traits.Schedules && other.traits.Schedules
	a.drop = a.drop && other.drop
	a.fair = a.fair && other.fair && subject.Restart == nil // turns of groups do not survive
	a.oneGroup = subject.Restart != nil
	left, right := newProgramRunner(t, reference), newProgramRunner(t, subject)
	runPrograms(t, t, a, steps, func(p *plan) error {
		want, err := left.run(p.program)
		if err != nil {
			return err
		}
		got, err := right.run(p.program)
		if err != nil {
			return err
		}
		return compare(p.program, "the reference", want, got, false)
	})
}

// runPrograms draws programs until steps operations were checked. Failures go to tb, which is t
// except in tests of failures.
func runPrograms(t *testing.T, tb rapid.TB, a ability, steps int, check func(*plan) error) {
	t.Helper()
	budget, err := newBudget(t, steps)
	if err != nil {
		t.Fatal(err)
	}
	generator := plans(a)
	programs, skipped, failed := 0, 0, false
	for !budget.spent() && !tb.Failed() {
		rapid.Check(tb, func(rt *rapid.T) {
			if budget.spent() && !failed {
				return
			}
			p := generator.Draw(rt, "program")
			programs++
			budget.done += len(p.Operations)
			switch err := check(p); {
			case errors.Is(err, errUnsupportedConfig):
				skipped++
			case err != nil:
				failed = true // from now on rapid shortens the program
				rt.Fatalf("%v", err)
			}
		})
		if seedGiven() {
			break // the same seed would draw the same programs again
		}
	}
	t.Logf("%d operations in %d programs, %d of them skipped, in %v", budget.done, programs, skipped, time.Since(budget.start).Round(time.Millisecond))
	if programs > 0 && skipped == programs {
		t.Errorf("the backend supports none of %d configurations", programs)
	}
}

// A budget bounds a run.
type budget struct {
	steps int
	done  int
	start time.Time
	until time.Time // zero if steps count
}

func newBudget(t *testing.T, steps int) (*budget, error) {
	t.Helper()
	b := &budget{start: time.Now()}
	var length time.Duration
	if b.steps, length = volume.Steps(t, steps, 50*steps); length > 0 {
		b.until = b.start.Add(length)
	}
	if deadline, ok := t.Deadline(); ok && deadline.Before(b.until) {
		return nil, fmt.Errorf("%s: %v goes beyond the test's -timeout", volume.Variable, length)
	}
	return b, nil
}

func (b *budget) spent() bool {
	if b.until.IsZero() {
		return b.done >= b.steps
	}
	return time.Now().After(b.until)
}

func seedGiven() bool {
	seed := flag.Lookup("rapid.seed")
	return seed != nil && seed.Value.String() != "0"
}

// compare returns an error with the first operation whose results differ and the program up to
// it, or nil. The program is printed as a story, with the right results, that can be added to
// the suite. The difference comes first, because reports cut long failures.
func compare(p program, whose string, want, got []result, exactHints bool) error {
	for i := range want {
		if !want[i].agrees(got[i], exactHints) {
			return fmt.Errorf("operation %d differs from %s\n\n%s\n\ngot:\n%s\nwant:\n%s\n%s",
				i+1, whose, p.Operations[i], got[i], want[i], listing(p, i+1, want))
		}
	}
	return nil
}

// listing prints the first n operations with their results, if there are any, as a story.
func listing(p program, n int, results []result) string {
	var b strings.Builder
	b.WriteString("== RULE title\n" + p.head() + "\n")
	for i, op := range p.Operations[:n] {
		fmt.Fprintln(&b, op)
		if i < len(results) && results[i].String() != "" {
			b.WriteString("----\n" + results[i].String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}
