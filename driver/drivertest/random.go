package drivertest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
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
	a.traits.DeadLetters = a.traits.DeadLetters && other.traits.DeadLetters
	a.traits.Peek = a.traits.Peek && other.traits.Peek
	a.traits.Move = a.traits.Move && other.traits.Move
	a.traits.LateAck = a.traits.LateAck && other.traits.LateAck
	a.drop = a.drop && other.drop
	a.fair = a.fair && other.fair && subject.Restart == nil // turns of groups are not kept
	a.oneGroup = subject.Restart != nil
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

// runPrograms draws programs until steps operations were checked. Failures go
// to tb, which is t except where a test wants to see them.
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
				failed = true // from now on rapid looks for a shorter program
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

// A budget says how long to go on.
type budget struct {
	steps int
	done  int
	start time.Time
	until time.Time // zero if steps count
}

func newBudget(t *testing.T, steps int) (*budget, error) {
	b := &budget{steps: steps, start: time.Now()}
	if text := os.Getenv("MAILBOX_RANDOM_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("MAILBOX_RANDOM_STEPS: %w", err)
		}
		b.steps = n
	}
	if text := os.Getenv("MAILBOX_RANDOM_FOR"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("MAILBOX_RANDOM_FOR: %w", err)
		}
		b.until = b.start.Add(d)
	}
	if deadline, ok := t.Deadline(); ok && !b.until.IsZero() && deadline.Before(b.until) {
		return nil, fmt.Errorf("MAILBOX_RANDOM_FOR goes beyond the test's -timeout")
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

// compare returns an error that shows the program up to the first operation
// whose results differ, or nil.
func compare(p Program, whose string, want, got []result, exactHints bool) error {
	for i := range want {
		if !want[i].agrees(got[i], exactHints) {
			return fmt.Errorf("operation %d differs from %s\n\n%sgot:\n%s\n%s says:\n%s",
				i+1, whose, listing(p, want[:i]), indent(got[i]), whose, indent(want[i]))
		}
	}
	return nil
}

// listing prints the operations that went well with their results, and the
// one after them.
func listing(p Program, results []result) string {
	var b strings.Builder
	b.WriteString(p.head())
	for i := range len(results) + 1 {
		fmt.Fprintf(&b, "%3d. %v\n", i+1, p.Operations[i])
		if i < len(results) {
			b.WriteString(indent(results[i]))
		}
	}
	return b.String()
}

func indent(r result) string {
	var b strings.Builder
	for line := range strings.Lines(r.String()) {
		b.WriteString("       " + line)
	}
	return b.String()
}
