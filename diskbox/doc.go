// Package diskbox is the embedded durable backend: one directory, no server.
// What Send has confirmed survives the end of the process, and of the machine.
//
// It is the same host of engines as membox, with a journal on a hardened store
// behind it. An operation is staged in memory, written, synced together with
// whatever else is waiting at that moment, and only then visible and answered.
// Receiving and extending do not wait for the disk: a lease that is lost in a
// crash means an early redelivery, which at-least-once allows, and a delivery
// count that is low by that much. So that a message which ends its process at once
// is not delivered for ever, the messages that a crash has left behind are the
// exception: nobody gets one of them before the disk has its lease.
//
// # Memory
//
// What waits is on disk. In memory are the messages in flight, the next few
// hundred that are ready, delayed or dead in each shard, the dedup keys, and
// counts. When those that are held run out, the next are read from where the
// last ones ended. So ten million waiting messages cost no more memory than ten
// thousand, and opening a directory reads the messages in flight and the dedup
// keys, and counts what is delayed.
//
// # On disk
//
// Keys begin with a letter, a queue's number (4 bytes) and, where it matters, a
// shard (2 bytes) and then one or two numbers (8 bytes each), all big-endian:
//
//	q queue                   name and configuration
//	c queue shard             how much is in it, and the highest numbers so far
//	m queue shard message     a message as it was sent, written once
//	s queue shard message     what has become of it since: place, failures
//	l queue shard message     its lease, while it is in flight
//	w queue shard place       the message at a place that is not its number
//	t queue shard due message a message that waits for a time
//	g queue shard group place a message of a strict or fair group, by a hash of its name
//	d queue shard death       a dead letter, whole
//	i queue shard id          the death of a dead letter
//	f queue shard death       a dead letter on its way to another queue, by id
//	k queue end digest        a dedup key: body digest, message id
//	T                         the clock: boot, and the time of the last commit
//	X                         secret of the dedup digests, last queue number
//	Z                         the store was closed in order
//
// A message that was sent and never delivered is only its m record, so the
// messages in the order of their numbers are nearly the ready ones in the order
// of their places; w has the few that were nacked. Every record that says
// something ends with a hash over its key and its bytes; a damaged message
// becomes a dead letter with reason integrity when its turn comes, and is never
// delivered. Check verifies all of this, Dump lists it.
//
// # Time
//
// Deadlines run on an axis of their own, which goes on with the time since boot
// as long as the machine is not restarted: a lease of a minute is over after a
// minute, whether or not the process lived through it. After a reboot the axis
// goes on where the last commit left it, so that deadlines come late rather
// than early.
package diskbox
