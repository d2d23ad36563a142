// Package engine is one shard of a queue as a pure state machine.
//
// It has no I/O, no clock, no lock and no goroutine. Time is an argument, the
// caller keeps the calls apart, and what a caller must do with the outside
// world (write to a store, forward a dead letter) comes back as [Effect]
// values. The same object is what scripts and random programs drive in tests,
// what membox guards with a mutex, and what diskbox puts a store behind.
//
// # Places
//
// Each waiting message has a place, a number that only grows. Receive takes
// the lowest place that may go. A send, a redrive, and a nack outside strict
// groups take a new place at the tail; becoming due and running out of
// visibility do not change the place. So order never depends on when somebody
// happened to look.
//
// # Time
//
// All deadlines sit in one heap, and [Shard.NextDeadline] is its top. Every
// method first calls [Shard.Advance], which replays what fell due since the
// last call in the order in which it fell due, stamped with its own time.
// A shard that nobody looked at for an hour is therefore in exactly the state
// it would be in if somebody had looked all the time; an owner needs a timer
// only to wake those who wait.
//
// # Memory
//
// A shard holds the messages in flight, and of those that wait as many as its
// owner lets it: see [Shard.SetShelf]. Without a shelf everything is held.
package engine
