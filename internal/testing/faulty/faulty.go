package faulty

import (
	"cmp"
	"context"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// A Saboteur breaks one rule in the backends it wraps.
type Saboteur struct {
	// Name describes the fault, in a form that can name a test.
	Name string
	// Breaks is the rule it breaks, as in docs/semantics.md.
	Breaks string
	// What says in one sentence what goes wrong.
	What string
	// Also lists further rules whose cases may be the ones to fail.
	Also []string
	// Rare marks faults that show only under load or in one sequence of operations: no single
	// case tests them, and drivertest.RunRandom or drivertest.RunConcurrent may be needed to
	// find them.
	Rare bool
	// Hangs marks faults that make a call block forever: the test needs a time limit.
	Hangs bool
	// Wrap returns a backend with the fault. It does no I/O. If inner lacks one of the
	// interfaces Admin, ScheduleLister, Pinger and Observable, or Close, the result can only open queues.
	// Wrapping one backend again stands for a restart, which is when some faults take effect.
	Wrap func(driver.Opener) driver.Opener

	// on is the fault. If one of the fields below is set, it holds until the restart.
	on hooks
	// restart is called once for each queue, when it is opened after the restart.
	restart func(q *queue, ctx context.Context) error
	// after is the fault after the restart.
	after *hooks
}

// All returns the saboteurs, in the order of the rules they break.
func All() []Saboteur {
	all := slices.Concat(
		sendFaults, capacityFaults, dedupFaults,
		receiveFaults, waitFaults, messageFaults,
		leaseFaults, receiptFaults, lateAckFaults, settleFaults,
		orderFaults, groupFaults, fairFaults,
		countFaults, peekFaults, pauseFaults, editFaults, releaseFaults, scheduleFaults,
		defaultFaults, deadLetterFaults, redriveFaults, deadLetterToFaults, moveFaults, retentionFaults, dropFaults, clockFaults, ttlFaults, priorityFaults, uniqueFaults, limitFaults, kindFaults, endingFaults,
		adminFaults, annotationFaults,
		rareFaults, sequenceFaults,
		restartFaults,
	)
	for i := range all {
		all[i].Wrap = all[i].wrap()
	}
	return all
}

// wrap returns the function Wrap of a saboteur.
func (s *Saboteur) wrap() func(driver.Opener) driver.Opener {
	var logs table[driver.Opener, *restartLog] // of the backends that were wrapped
	return func(inner driver.Opener) driver.Opener {
		log, known := logs.get(inner)
		if known && (s.restart != nil || s.after != nil) {
			return cmp.Or(s.after, new(hooks)).wrap(inner, s.restart, log)
		}
		log = new(restartLog)
		logs.put(inner, log)
		return s.on.wrap(inner, nil, log)
	}
}

// PassThrough wraps a backend as saboteurs do, without a fault. The suite must pass on it.
func PassThrough(inner driver.Opener) driver.Opener { return new(hooks).wrap(inner, nil, nil) }
