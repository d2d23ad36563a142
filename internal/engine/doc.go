// Package engine is one shard of a queue as a pure state machine.
//
// It has no I/O, no clock, no lock and no goroutine. Time is an argument, and the
// caller makes one call at a time. Work that needs the outside world (writing to a
// store, forwarding a dead letter) comes back as [Effect] values. Tests drive the
// shard with scripts and random programs, membox guards it with a mutex, and
// diskbox puts a store behind it.
//
// # Places
//
// Each waiting message has a place, a number that only grows. Receive takes the
// message at the lowest place that is not blocked. A send, a redrive, and a nack
// outside strict groups take a new place at the tail; a delay or a lease that ends
// does not change the place. So order never depends on when a method was called.
//
// # Time
//
// All deadlines are in one heap, and [Shard.NextDeadline] is its top. Every method
// first calls [Shard.Advance], which handles the events that fell due since the last
// call, in the order in which they fell due, each with its own time. A shard that
// was not called for an hour is therefore in exactly the state it would be in if it
// had been called all the time. An owner needs a timer only to wake waiting
// receivers.
//
// # Stage and publish
//
// Sending and settling happen in two steps, so that an owner with a disk can write
// between them; see settle.go.
//
// # Memory
//
// A shard holds all messages in flight. With a [Backlog] it holds only the first of
// the ready, delayed and dead messages, its window, and reads the others from the
// backlog when they are next; see [Shard.SetBacklog]. Without one it holds all.
package engine
