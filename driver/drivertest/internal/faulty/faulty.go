package faulty

import (
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
	// Wrap returns a backend with the abilities of inner, and with the fault. It does no I/O.
	// Wrapping one backend again stands for a restart, which is when some faults take effect.
	Wrap func(driver.Opener) driver.Opener
}

// All returns the saboteurs, in the order of the rules they break.
func All() []Saboteur {
	return slices.Concat(
		sendFaults, capacityFaults, dedupFaults,
		receiveFaults, waitFaults, messageFaults,
		leaseFaults, receiptFaults, lateAckFaults, settleFaults,
		orderFaults, groupFaults, fairFaults,
		countFaults, peekFaults,
		defaultFaults, deadLetterFaults, redriveFaults, deadLetterToFaults, moveFaults, retentionFaults, dropFaults, endingFaults,
		adminFaults, annotationFaults,
		rareFaults, sequenceFaults,
		restartFaults,
	)
}

// PassThrough wraps a backend as saboteurs do, without a fault. The suite must pass on it.
func PassThrough(inner driver.Opener) driver.Opener {
	return perHandle(func(q passThrough) driver.Queue { return q })(inner)
}
