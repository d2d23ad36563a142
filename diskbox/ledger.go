package diskbox

import (
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// ledger keeps the counts of each shard, so that opening a store does not have to count.
// A changed count is written in the batch that changes it.
type ledger struct {
	shards  map[host.ShardID]*account
	changed []host.ShardID
}

// account has the counts of one shard.
type account struct {
	// Totals without Delayed, which depends on the time.
	engine.Totals
	changed bool
	written uint64         // all messages with a lower Seq are in the store
	removed int            // messages removed since the head was last trimmed
	freed   int            // their bytes
	trimmed uint64         // no messages have a lower Seq
	timed   int            // due-time records written since the last sweep
	now     engine.Instant // the shard has handled all events before
}

func newLedger() ledger { return ledger{shards: make(map[host.ShardID]*account)} }

// at returns the account of a shard for reading, or an empty one that is not stored.
func (l *ledger) at(shard host.ShardID) *account {
	if a := l.shards[shard]; a != nil {
		return a
	}
	return &account{}
}

// change returns the account of a shard for changing, and creates it if necessary.
func (l *ledger) change(shard host.ShardID) *account {
	a := l.at(shard)
	l.shards[shard] = a
	if !a.changed {
		a.changed = true
		l.changed = append(l.changed, shard)
	}
	return a
}

func (a *account) arrived(e *engine.Entry) {
	a.Messages++
	a.Bytes += int(e.Size)
	if e.HoldsKey() {
		a.Keys++
	}
	a.used(e)
}

func (a *account) left(e *engine.Entry) {
	a.Messages--
	a.Bytes -= int(e.Size)
	if e.HoldsKey() {
		a.Keys--
	}
	if a.Messages == 0 {
		a.Bytes = 0 // damaged messages may have been counted wrong
		a.Indexed, a.Keys = 0, 0
	}
	a.removed++
	a.freed += int(e.Size)
}

// used makes sure that the numbers of e are not assigned again.
func (a *account) used(e *engine.Entry) {
	a.NextSeq = max(a.NextSeq, e.Seq+1, e.Place+1)
}

func (a *account) died(e *engine.Entry) {
	a.left(e)
	a.Dead++
	a.Deaths = max(a.Deaths, e.Place)
}

// forget drops the accounts of a deleted queue.
func (l *ledger) forget(queue uint32) {
	for shard := range l.shards {
		if shard.Queue == queue {
			delete(l.shards, shard)
		}
	}
}
