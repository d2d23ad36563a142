package diskbox

import (
	"time"

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// leases are the leases that are not in a batch yet. They are added at the end of a batch,
// so that the lease of a message that is settled before, as most are under load, is never
// written.
//
// A lease survives a crash from then on: when a store is opened, readLeases (recover.go)
// reads the messages in flight, and engine.Shard.Restore makes them in flight again until
// their deadline. A delivery does not wait for its lease to be written, so a crash can lose
// the leases of the last moments; those messages are ready again, as at-least-once allows.
// Messages that existed at an earlier crash are the exception, see taken.survivors in
// package host.
type leases map[leaseID]heldLease

type leaseID struct {
	shard host.ShardID
	seq   uint64
}

// A heldLease is what is recorded about a message in flight. It is a copy, because entries
// must not be kept.
type heldLease struct {
	place, nonce    uint64
	due, holdUntil  engine.Instant
	marks           engine.Marks
	deliveries      uint32
	firstReceivedAt int64
	lastError       string
	restarted       time.Duration
}

func (l leases) add(shard host.ShardID, e *engine.Entry) {
	added := heldLease{
		place: e.Place, nonce: e.Nonce, due: e.Due, holdUntil: e.HoldUntil,
		marks: e.Marks, deliveries: e.Deliveries, firstReceivedAt: e.FirstReceivedAt, restarted: e.RestartedAfter(),
	}
	if e.Extra != nil {
		added.lastError = e.Extra.LastError
	}
	l[leaseID{shard, e.Seq}] = added
}

// writeLeases adds the leases to the batch that is about to end.
func (j *journal) writeLeases() {
	for id, l := range j.leases {
		e := l.entry()
		j.number(leaseKind, id.shard, id.seq)
		j.begin().state(&e)
		j.end()
		j.stored[id] = struct{}{}
	}
	if len(j.leases) > maxSpareLeases {
		j.leases = make(leases)
	}
	clear(j.leases)
}

// maxSpareLeases bounds the memory of the map that is kept for reuse.
const maxSpareLeases = 16 << 10

// entry returns an entry with the recorded fields.
func (l *heldLease) entry() engine.Entry {
	e := engine.Entry{
		Place: l.place, Nonce: l.nonce, Due: l.due, HoldUntil: l.holdUntil,
		Marks: l.marks, Deliveries: l.deliveries, FirstReceivedAt: l.firstReceivedAt,
	}
	e.SetRestartedAfter(l.restarted)
	if l.lastError != "" {
		e.Extra = &engine.Extra{LastError: l.lastError}
	}
	return e
}
