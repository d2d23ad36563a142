// Package diskbox is the embedded durable backend: one directory, no server.
// What Send has confirmed survives the end of the process, and of the machine.
//
// It is the same host of engines as membox, with a journal on a hardened store
// behind it. An operation is staged in memory, written, synced together with
// whatever else is waiting at that moment, and only then visible and answered.
// Receiving and extending do not wait for the disk: a lease that is lost in a
// crash means an early redelivery, which at-least-once allows, and a delivery
// count that is low by that much.
//
// # On disk
//
// Keys begin with a letter, a queue's number (4 bytes) and, where it matters, a
// shard (2 bytes) and a message's number in it (8 bytes), all big-endian:
//
//	q queue                   name and configuration
//	m queue shard message     a message as it was sent, written once
//	s queue shard message     what has become of it: place, leases, failures
//	d queue shard message     a dead letter, whole
//	k queue end digest        a dedup key: body digest, message id
//	T                         the clock: boot, and the time of the last commit
//	X                         secret of the dedup digests, last queue number
//
// A message that was never delivered or delayed is only its m record. Every
// record of a message ends with a hash over its key and its bytes; a damaged
// message becomes a dead letter with reason integrity, and is never delivered.
//
// # Time
//
// Deadlines run on an axis of their own, which goes on with the time since boot
// as long as the machine is not restarted: a lease of a minute is over after a
// minute, whether or not the process lived through it. After a reboot the axis
// goes on where the last commit left it, so that deadlines come late rather
// than early.
package diskbox
