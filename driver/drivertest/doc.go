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
// as a loaded machine needs.
//
// # Vocabulary
//
// An env is the environment of one case: a backend, its queue, and the methods
// that cases are written in. Methods that begin with "expect" check a result and
// fail the case; run functions run a case or a program.
package drivertest
