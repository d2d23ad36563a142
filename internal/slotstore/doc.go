// Package slotstore is a reply store in memory, with or without a journal that makes it
// durable: package reply and package diskbox make their stores of it.
//
// A store decides every operation in memory, under one lock. With a journal it records the
// result there before it releases the lock, and the call returns when the record is durable.
// Waiting callers are woken then too, and a read that sees a slot with undurable writes waits
// for them: an answer that a crash could take back is never seen.
//
// A waiting caller is a channel in its slot. One timer, set for the first slot to expire,
// serves all of them. No slot has a goroutine, and nothing polls.
package slotstore
