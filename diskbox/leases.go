package diskbox

import (
	"maps"

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// leases are those that are in no batch yet. They are added when a batch is ended:
// a message that is settled before, as most are where much is going on, has a lease
// that is never written. Nobody reads leases but whoever opens the store, so it does
// not matter where in a batch they are.
type leases map[leaseID]heldLease

type leaseID struct {
	shard host.ShardID
	seq   uint64
}

// A heldLease is what is recorded about a message in flight. The entry that says it is
// not ours to keep.
type heldLease struct {
	place, nonce    uint64
	due, holdUntil  engine.Instant
	marks           engine.Marks
	deliveries      uint32
	firstReceivedAt int64
	lastError       string
}

func (l leases) add(shard host.ShardID, e *engine.Entry) {
	added := heldLease{
		place: e.Place, nonce: e.Nonce, due: e.Due, holdUntil: e.HoldUntil,
		marks: e.Marks, deliveries: e.Deliveries, firstReceivedAt: e.FirstReceivedAt,
	}
	if e.Extra != nil {
		added.lastError = e.Extra.LastError
	}
	l[leaseID{shard, e.Seq}] = added
}

// forget drops the leases of messages that are gone.
func (l leases) forget(gone func(leaseID) bool) {
	maps.DeleteFunc(l, func(id leaseID, _ heldLease) bool { return gone(id) })
}

// writeLeases adds them to the batch that is about to end.
func (j *journal) writeLeases() {
	for id, l := range j.leases {
		e := l.entry()
		j.number(leaseKind, id.shard, id.seq)
		j.begin().state(&e)
		j.end()
	}
	if len(j.leases) > maxSpareLeases {
		j.leases = make(leases)
	}
	clear(j.leases)
}

// maxSpareLeases bounds for how many the memory is kept.
const maxSpareLeases = 16 << 10

// entry is the entry that the lease was made of, as far as it is recorded.
func (l *heldLease) entry() engine.Entry {
	e := engine.Entry{
		Place: l.place, Nonce: l.nonce, Due: l.due, HoldUntil: l.holdUntil,
		Marks: l.marks, Deliveries: l.deliveries, FirstReceivedAt: l.firstReceivedAt,
	}
	if l.lastError != "" {
		e.Extra = &engine.Extra{LastError: l.lastError}
	}
	return e
}
