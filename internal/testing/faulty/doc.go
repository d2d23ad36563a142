// Package faulty holds saboteurs: drivers that break exactly one rule.
//
// A conformance suite that never fails proves nothing. Each [Saboteur] wraps a
// correct backend and breaks one rule of docs/semantics.md, as a plausible bug
// would: it drops the last message of a batch, accepts a stale receipt, or wakes
// a waiting receiver late. A case of package drivertest for that rule must fail;
// the tests of this package check that.
//
// A saboteur is an entry of a table. Its hooks replace functions of the backend and of its
// queues, and call the wrapped ones:
//
//	{Name: "forgets-delay", Breaks: "SND-2",
//		What: "A delayed message is ready at once.",
//		on:   hooks{send: alterSent(func(_ *queue, msg *driver.Outgoing) { msg.Delay = min(msg.Delay, 0) })}},
//
// Functions such as alterSent make hooks of what many saboteurs do. What a saboteur remembers
// of a queue is its state. A new case of the suite deserves a saboteur that only it catches:
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
