package diskbox

import (
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// ledger counts what is in each shard, so that opening a store need not. What
// changed is written with the very batch that changed it.
type ledger struct {
	shards  map[host.ShardID]*account
	changed []host.ShardID
}

// account is one shard in the ledger.
type account struct {
	// Totals without Delayed, which depends on the time.
	engine.Totals
	changed bool
	written uint64         // all messages with a lower Seq were handed to the store
	removed int            // messages removed since the head was last trimmed
	freed   int            // their bytes
	trimmed uint64         // there is nothing below this Seq
	timed   int            // notes of due times since they were last swept
	now     engine.Instant // what was due in the shard before has happened
}

func newLedger() ledger { return ledger{shards: make(map[host.ShardID]*account)} }

// at returns the account of a shard to be looked at. Where there is none it is
// blank, and nobody keeps it.
func (l *ledger) at(shard host.ShardID) *account {
	if a := l.shards[shard]; a != nil {
		return a
	}
	return &account{}
}

// change returns the account of a shard to be changed. It is made if need be.
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
	a.used(e)
}

func (a *account) left(e *engine.Entry) {
	a.Messages--
	a.Bytes -= int(e.Size)
	if a.Messages == 0 {
		a.Bytes = 0 // whatever damaged messages were once counted with
	}
	a.removed++
	a.freed += int(e.Size)
}

// used makes sure that no number of e is given again.
func (a *account) used(e *engine.Entry) {
	a.NextSeq = max(a.NextSeq, e.Seq+1, e.Place+1)
}

func (a *account) died(e *engine.Entry) {
	a.left(e)
	a.Dead++
	a.Deaths = max(a.Deaths, e.Place)
}

// forget drops the accounts of a queue that is gone.
func (l *ledger) forget(queue uint32) {
	for shard := range l.shards {
		if shard.Queue == queue {
			delete(l.shards, shard)
		}
	}
}
