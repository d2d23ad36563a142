package diskbox

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/maxhold"
	"github.com/mailboxmq/mailbox/internal/slotstore"
	"github.com/mailboxmq/mailbox/internal/store"
)

// recovery reads from a store what has to be in memory: queues, counts, messages in
// flight with their leases, unique keys, dedup keys, schedules and reply slots.
type recovery struct {
	store  *store.Store
	clock  *axis
	now    engine.Moment
	queues map[uint32]*host.RestoredQueue
	lastID uint32
	leases []leaseID // all in the store
	secret [32]byte
	// closed: the last process closed the store; crashed: it did not. A new store is
	// neither.
	closed, crashed bool
	stale           [][]byte // keys of index records to remove
	levels          [][]byte // then to add; see levels.go
	slots           []slotstore.Record
	orphans
}

// recoverAll reads all of it, as of now.
func recoverAll(s *store.Store, clock *axis, now engine.Moment) (*recovery, error) {
	r := &recovery{
		store: s, clock: clock, now: now,
		queues: make(map[uint32]*host.RestoredQueue),
	}
	for _, step := range []func() error{r.readMeta, r.readQueues, r.findOrphans, r.readTotals, r.readLeases, r.readLeaving, r.countDelayed, r.findLives, r.findLevels, r.readUnique, r.readKeys, r.readSchedules, r.readSlots} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// each calls do for every record of a kind.
func (r *recovery) each(kind byte, do func(key, value []byte) error) error {
	it := r.store.Iterate([]byte{kind}, []byte{kind + 1})
	defer func() { _ = it.Close() }() // Err has the error
	for it.Next() {
		if err := do(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}

func (r *recovery) readMeta() error {
	value, err := r.store.Get(metaKey, nil)
	if errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	rd := open(metaKey, value)
	r.lastID = uint32(rd.number())
	copy(r.secret[:], rd.take())
	if rd.damaged {
		return damagedError("the record of the store's secret")
	}
	value, err = r.store.Get(closedKey, nil)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	_, sound := sealed(closedKey, value)
	r.closed = err == nil && sound
	r.crashed = !r.closed
	return nil
}

func (r *recovery) readQueues() error {
	return r.each(queueKind, func(key, value []byte) error {
		var record queueRecord
		content, ok := sealed(key, value)
		if !ok || len(key) != queueKeyLen || json.Unmarshal(content, &record) != nil {
			return damagedError("the record of a queue")
		}
		id := binary.BigEndian.Uint32(key[1:])
		if id > r.lastID {
			return damagedError("the record of the last queue number")
		}
		record.Config.MaxHold = maxhold.Read(int64(record.Config.MaxHold))
		r.queues[id] = &host.RestoredQueue{ID: id, Name: record.Name, Config: record.Config, Paused: record.Paused, Throttled: record.Throttled}
		return nil
	})
}

func damagedError(what string) error {
	return &driver.Error{
		Code: driver.ErrIntegrity, Op: "open",
		Detail: what + " is damaged; restore a backup",
	}
}

// readTotals reads the counts of the ledger.
func (r *recovery) readTotals() error {
	for _, q := range r.queues {
		q.Shards = make([]host.RestoredShard, max(q.Config.Shards, 1))
	}
	counted := make(map[host.ShardID]bool)
	err := r.each(countKind, func(key, value []byte) error {
		shard := r.find(key)
		if shard == nil {
			return nil
		}
		rd := open(key, value)
		shard.Totals = rd.totals()
		if rd.damaged {
			return damagedError("the record of the counts of a queue")
		}
		id, _ := parseShardKey(key)
		counted[id] = true
		return nil
	})
	if err != nil {
		return err
	}
	return r.eachShard(func(id host.ShardID, _ *host.RestoredShard) error {
		if counted[id] {
			return nil
		}
		return r.expectEmpty(id)
	})
}

// expectEmpty returns an error if a shard without a record of its counts has messages.
func (r *recovery) expectEmpty(shard host.ShardID) error {
	for _, kind := range []byte{messageKind, deadKind} {
		from := appendShardKey(nil, kind, shard)
		it := r.store.Iterate(from, successor(from))
		found := it.Next()
		if err := it.Close(); err != nil {
			return err
		}
		if found {
			return damagedError("the record of the counts of a queue")
		}
	}
	return nil
}

// eachShard calls do for every shard of every queue.
func (r *recovery) eachShard(do func(id host.ShardID, shard *host.RestoredShard) error) error {
	for id, q := range r.queues {
		for n := range q.Shards {
			if err := do(host.ShardID{Queue: id, Shard: uint16(n)}, &q.Shards[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readLeases reads the messages in flight with their leases, so that leases survive a
// restart. host.Backend.Restore puts them back.
func (r *recovery) readLeases() error {
	return r.each(leaseKind, func(key, value []byte) error {
		shard := r.find(key)
		if shard == nil {
			return nil
		}
		id, _ := parseShardKey(key)
		r.leases = append(r.leases, leaseID{id, lastNumber(key)})
		message := append([]byte{messageKind}, key[1:]...)
		body, err := r.store.Get(message, nil)
		if errors.Is(err, driver.ErrNotFound) {
			return damagedError("the record of a message in flight")
		}
		if err != nil {
			return err
		}
		e := readMessage(message, body)
		readState(e, key, value)
		if !e.Is(unreadable) { // otherwise it waits, and is dead-lettered when it is read
			r.clock.moveLease(e)
			shard.InFlight = append(shard.InFlight, e)
		}
		return nil
	})
}

// readLeaving reads which dead letters were about to be forwarded.
func (r *recovery) readLeaving() error {
	return r.each(leavingKind, func(key, _ []byte) error {
		if shard := r.find(key); shard != nil {
			shard.Leaving = append(shard.Leaving, lastNumber(key))
		}
		return nil
	})
}

// countDelayed counts the messages whose delay has not ended.
func (r *recovery) countDelayed() error {
	return r.eachShard(func(id host.ShardID, shard *host.RestoredShard) error {
		it := r.store.Iterate(appendDuePrefix(nil, dueKind, id, r.now.At+1), successor(appendShardKey(nil, dueKind, id)))
		for it.Next() {
			if len(it.Value()) == 0 { // otherwise it is estimated
				shard.Totals.Delayed++
			}
		}
		return cmp.Or(it.Close(), r.countAlarms(id, shard))
	})
}

// find returns the shard of a key, or nil if it does not exist.
func (r *recovery) find(key []byte) *host.RestoredShard {
	shard, ok := parseShardKey(key)
	q := r.queues[shard.Queue]
	if !ok || q == nil || int(shard.Shard) >= len(q.Shards) {
		return nil
	}
	return &q.Shards[shard.Shard]
}

// queueOf returns the queue of a key, or nil if it does not exist.
func (r *recovery) queueOf(key []byte) *host.RestoredQueue {
	if len(key) < queueKeyLen {
		return nil
	}
	return r.queues[binary.BigEndian.Uint32(key[1:])]
}

// readKeys reads the dedup keys whose window is not over.
func (r *recovery) readKeys() error {
	return r.each(dedupKind, func(key, value []byte) error {
		queue, ends, digest, ours := parseDedupKey(key)
		q := r.queues[queue]
		if !ours || q == nil || ends <= r.now.At {
			return nil
		}
		if _, ok := sealed(key, value); !ok || len(value) != 32+sumLen {
			return damagedError("the record of a dedup key")
		}
		restored := host.RestoredKey{Key: digest, Ends: ends}
		copy(restored.Content[:], value)
		copy(restored.ID[:], value[16:])
		q.Keys = append(q.Keys, restored)
		return nil
	})
}
