// Package faulty holds saboteurs: drivers that break exactly one rule.
//
// A conformance suite that never fails proves nothing. Each [Saboteur] wraps a
// correct backend and breaks one rule of docs/semantics.md, as a plausible bug
// would: it drops the last message of a batch, accepts a stale receipt, or wakes
// a waiting receiver late. A case of package drivertest for that rule must fail;
// the tests of this package check that.
//
// A new case of the suite deserves a saboteur that only it catches:
//
//	for _, saboteur := range faulty.All() {
//		opener := saboteur.Wrap(membox.New(nil))
//		…
//	}
//
// Saboteurs work on any backend that supports the broken operation. They use
// package driver only, so some take detours: the one that sends nacked messages
// to the tail of a strict group dead-letters and redrives them.
package faulty
