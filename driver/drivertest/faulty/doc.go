// Package faulty holds saboteurs: drivers that keep every promise but one.
//
// A conformance suite that nothing fails proves nothing. Each [Saboteur] wraps
// a good backend and breaks one rule of docs/semantics.md, as a plausible
// mistake would: it drops the last message of a batch, accepts a receipt that
// is stale, wakes a waiting receiver late. The suite of package drivertest has
// to notice, by a case of that rule; the tests of this package see to it.
//
// A new case of the suite deserves a saboteur that only it catches:
//
//	for _, saboteur := range faulty.All() {
//		opener := saboteur.Wrap(membox.New(nil))
//		…
//	}
//
// Saboteurs work on any backend that can do what they spoil. They reach it
// through package driver only, so that some have to take odd ways: one that
// sends what is nacked to the tail of a strict group buries and redrives it.
package faulty
