// Package drivertest is the conformance suite for backends.
//
// A backend's whole test is a [Backend] and a call of [Run]:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Backend{
//			Open:    func(t testing.TB) driver.Opener { return membox.New(nil) },
//			Virtual: true,
//		})
//	}
//
// # Cases
//
// A case is named after the rule it proves, "VIS-2/an ack after the deadline
// fails"; the rules are the headings of docs/semantics.md. A case that fails
// reports the broken rule, the operation, its result and the expected result.
// [Cases] lists them.
//
// # Stories
//
// Sequential cases are stories: text files under stories/, in the format of package story, that
// run on every backend and every wire surface. Cases with goroutines, waiting receives, restarts
// and faults are Go functions.
//
//	== ACK-1 ack of one message leaves the others
//	needs fifo
//	queue max-deliveries=2
//	send a b c
//	receive 3
//	ack b
//	stats
//	----
//	a b c
//	2 in flight
//
// A header names the rule and the case; "needs" lists the keys of storyNeeds. The commands of a
// block run in order, and print the lines below the dashes. A failure names the file, the line,
// the command, what it printed and what it should have printed. The commands are:
//
//	queue SETTING=…            first: configure the queue under test
//	in QUEUE COMMAND           on another queue; "in orders" is a second handle
//	send a b OPTION=…, c       one batch; key= group= delay= body= reply-to= correlation= seal= attribute:K=V
//	receive N                  N messages that must be ready; at=D: that must come when due
//	receive max=N              one call; visibility= bytes= wait=
//	ack, nack, extend a b#2    settle; delay= cause= visibility=; b#2 is the receipt of the second delivery
//	ack-late, extend-late      as above, past the deadline
//	dead-letter a reason=R     cause= type=
//	kill a b                   send and dead-letter, one after the other
//	dead, purge-dead           list or remove the dead letters
//	redrive all|a…, discard a  limit=
//	move QUEUE                 limit=
//	peek, purge, forget        forget frees the dedup keys
//	stats                      the counts; at=D: that they must have when due
//	time +D                    let time pass
//	clock +D                   set the wall clock of the backend, from now on D ahead of ours
//	mark                       from when at= and before= count; the start if there is none
//	configure SETTING=…        change the live queue; the story ends if the backend cannot
//	nothing, empty             check that nothing can be received, or that nothing is there
//	expired a, too-late a      check that every settlement, or a late ack, refuses the receipt
//	virtual                    the rest needs virtual time
//	verbose                    show every field and the stats, as random programs do
//
// Durations are sums such as 10s, 2tick or hold-1ms of Go's and of durationNames: a tick is short
// enough to wait for, a hold outlasts the case. Any command can have only=virtual, and before=D,
// which repeats the case if a slow machine let D pass. A word x[1..9] is nine words.
//
// Commands print what is unusual: a send the messages that were refused or duplicates, a
// settlement the receipts that failed. Messages are printed by name, with #2 for a second
// delivery, :CAUSE for a last error, (REASON) for a dead letter, and !FIELD for a field that is
// not what was sent, or a time or receipt that is not what it must be. [RunRandom] prints a
// failing program as a story that can be added to a file.
//
// The suite reads [driver.Traits] as a program would. If a backend reports that
// it does not support something, the case checks the refusal instead: an option
// that is neither honoured nor refused is a failure. What cannot be checked
// either way is logged.
//
// # Time
//
// A Virtual backend runs every case in a bubble of testing/synctest: hours of
// visibility take no time, and "at once" means within 50 ms of a clock that
// stands still while a goroutine runs. Any other backend runs on short real
// durations. There "not before" is still strict, and "at once" is as generous
// as a loaded machine needs. A case that uses ticks and fails after its operations
// took longer than a quarter of one is repeated with longer ticks; the last attempt
// counts.
//
// # Vocabulary
//
// An env is the environment of one case: a backend, its queue, and the methods
// that cases are written in. Methods that begin with "expect" check a result and
// fail the case; run functions run a case or a program.
package drivertest
