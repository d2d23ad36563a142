package faulty

import (
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// A Saboteur breaks one promise of the backends it wraps.
type Saboteur struct {
	// Name says what it does, in a form that can name a test.
	Name string
	// Breaks is the rule it breaks, as in docs/semantics.md.
	Breaks string
	// What says in one sentence what goes wrong.
	What string
	// Also lists further rules whose cases may be the ones to notice.
	Also []string
	// Rare says that the harm shows only under load or in the right sequence
	// of operations: no single case is about it, and drivertest.RunRandom or
	// drivertest.RunConcurrent may be needed to find it.
	Rare bool
	// Hangs says that something never returns: a test that catches it needs a
	// time limit.
	Hangs bool
	// Wrap returns a backend with the abilities of the one given to it, and
	// with the fault. It does no I/O. Wrapping one backend again stands for a
	// restart, and for some saboteurs that is when they do their harm.
	Wrap func(driver.Opener) driver.Opener
}

// All returns the saboteurs, in the order of the rules they break.
func All() []Saboteur {
	return slices.Concat(
		senders, capacities, dedupers,
		receivers, sleepers, describers,
		leasers, forgers, forgivers, settlers,
		orderers, groupers, fairies,
		counters, peekers,
		defaulters, undertakers, redrivers, exiles, movers, retainers, droppers, tellers,
		administrators, annotators,
		racers, oddities,
		amnesiacs,
	)
}

// PassThrough wraps a backend as saboteurs do, and spoils nothing. What a test
// holds against a saboteur has to hold for it too.
func PassThrough(inner driver.Opener) driver.Opener {
	return perHandle(func(q passing) handle { return q })(inner)
}
