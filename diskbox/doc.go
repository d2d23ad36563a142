// Package diskbox is the embedded durable backend: one directory, no server. A message
// that Send has confirmed survives a crash of the process and of the machine.
//
// It is the same host as membox, with a journal on a hardened store behind it. An
// operation is staged in memory, written, synced together with all others that wait at
// that moment, and only then visible and answered. Receiving and extending do not wait
// for the disk: a lease that is lost in a crash means an early redelivery, which
// at-least-once allows, and a delivery count that is too low. Messages that a crash has
// left behind are the exception: their leases are on disk before they are delivered, so
// that a message that crashes its process at once is not delivered without end.
//
// # Memory
//
// The backlog is on disk. In memory are the messages in flight, the next few hundred
// ready, delayed and dead messages of each shard, the dedup keys and unique keys, and counts. When the
// messages in memory run out, the next are read from where the last ones ended. So ten
// million waiting messages cost no more memory than ten thousand, and opening a directory
// reads the messages in flight, the unique keys and the dedup keys, and counts the delayed messages.
//
// # On disk
//
// Keys begin with a character, the number of a queue (4 bytes), for most kinds a shard
// (2 bytes), and one or two numbers (8 bytes each), all big-endian:
//
//	q queue                   name and configuration
//	c queue shard             counts, and the highest numbers so far
//	m queue shard message     a message as it was sent, written once
//	s queue shard message     its state after a delivery: place, failures
//	l queue shard message     its lease, while it is in flight
//	w queue shard place       the message at a place that is not its number
//	t queue shard due message a delayed message
//	a queue shard due message a message with a due time, by wall time; t has an estimate
//	e queue shard end message a message with a time to live, by its end, a wall time
//	g queue shard group place a message of a strict or fair group, by a hash of its name
//	p queue shard priority place a message of a shard with priorities, see levels.go
//	u queue shard message     the unique key that a message holds: digest, message id
//	d queue shard death       a dead letter, whole
//	i queue shard id          the death of a dead letter
//	f queue shard death       the id of a dead letter that is about to be forwarded
//	k queue end digest        a dedup key: body digest, message id
//	r queue name              a schedule: definition, revision, through when, latest runs
//	y id                      a reply slot: state and times
//	z id                      the answer in a reply slot
//	T                         the clock: boot id, and the times of the last commit
//	X                         secret of the dedup digests, last queue number
//	Z                         present while the store is closed in order
//
// A message that was sent and never delivered has only its m record, so the messages by
// number are nearly the ready ones by place; w has the few that were nacked. Every record
// with content has a checksum over its key and its bytes, and m and d have another one for
// the body. A damaged message is never delivered: it becomes a dead letter with reason
// integrity when it is read, with its id and attributes if only the body is damaged. Check
// verifies all of this, List lists the messages.
//
// # Time
//
// Deadlines use a time axis of their own, which follows the time since boot while the
// machine is not restarted: a lease of a minute ends after a minute, whether or not the
// process was running. After a reboot the axis has moved on since the last commit by as much as
// the wall clock says, and not back. Leases do not rely on the wall clock: they are moved by
// as much, and so end late rather than early. Due times and the ends of times to live are wall
// times, and are compared with the wall clock.
package diskbox
