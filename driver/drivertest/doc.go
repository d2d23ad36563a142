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
// A case is called after the rule it proves, "VIS-2/an ack after the deadline
// fails", and rules are the headings of docs/semantics.md. A case that fails
// says which rule is broken, what was done, what came of it and what should
// have. [Cases] lists them.
//
// The suite reads [driver.Traits] as a program would. Where a backend says
// that it cannot do something, the case checks the refusal instead: an option
// that is neither honoured nor refused is a failure. What cannot be checked
// either way is logged.
//
// # Time
//
// A Virtual backend runs every case in a bubble of testing/synctest: hours of
// visibility take no time, and "at once" means within 50 ms of a clock that
// stands still while anybody works. Any other backend runs on short real
// durations. There "not before" is still strict, and "at once" is as generous
// as a loaded machine needs.
package drivertest
