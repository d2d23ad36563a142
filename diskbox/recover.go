package diskbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// recovery reads everything there is in a store.
type recovery struct {
	store  *store.Store
	now    engine.Instant
	queues map[uint32]*host.RestoredQueue
	live   map[host.ShardID][]*engine.Entry
	dead   map[host.ShardID][]*engine.Entry
	lastID uint32
	secret [32]byte
}

// recoverAll returns what was journaled. now is the present on the axis.
func recoverAll(s *store.Store, now engine.Instant) (*recovery, error) {
	r := &recovery{
		store: s, now: now,
		queues: make(map[uint32]*host.RestoredQueue),
		live:   make(map[host.ShardID][]*engine.Entry),
		dead:   make(map[host.ShardID][]*engine.Entry),
	}
	for _, step := range []func() error{r.readMeta, r.readQueues, r.readMessages, r.readDead, r.readKeys} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.assemble()
	return r, nil
}

// each calls do for every record of a kind.
func (r *recovery) each(kind byte, do func(key, value []byte) error) error {
	it := r.store.Iterate([]byte{kind}, []byte{kind + 1})
	defer func() { _ = it.Close() }() // what went wrong is in Err
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
	return nil
}

func (r *recovery) readQueues() error {
	return r.each(queueKind, func(key, value []byte) error {
		var record queueRecord
		if len(key) != 5 || len(value) < sumLen || string(sum(key, value[:len(value)-sumLen])) != string(value[len(value)-sumLen:]) ||
			json.Unmarshal(value[:len(value)-sumLen], &record) != nil {
			return damagedError("the record of a queue")
		}
		id := uint32(key[1])<<24 | uint32(key[2])<<16 | uint32(key[3])<<8 | uint32(key[4])
		r.queues[id] = &host.RestoredQueue{ID: id, Name: record.Name, Config: record.Config}
		return nil
	})
}

func damagedError(what string) error {
	return &driver.Error{
		Code: driver.ErrIntegrity, Op: "open",
		Detail: what + " is damaged; restore a backup",
	}
}

// readMessages reads messages and what became of them, side by side.
func (r *recovery) readMessages() error {
	states := r.store.Iterate([]byte{stateKind}, []byte{stateKind + 1})
	defer func() { _ = states.Close() }() // what went wrong is in Err
	more := states.Next()
	err := r.each(messageKind, func(key, value []byte) error {
		shard, seq, ok := parseMessageKey(key)
		if !ok || !r.known(shard) {
			return nil // of a queue that was deleted while it was sent to
		}
		e := &engine.Entry{Seq: seq, Place: seq, State: engine.Ready}
		rd := open(key, value)
		rd.message(e)
		if !rd.damaged && e.Due > e.Born {
			e.State = engine.Delayed
		}
		for more && string(states.Key()[1:]) < string(key[1:]) {
			more = states.Next()
		}
		if more && string(states.Key()[1:]) == string(key[1:]) && !rd.damaged {
			rd = open(states.Key(), states.Value())
			if rd.state(e) == stateLeased {
				e.State = engine.InFlight
			} else {
				e.State = engine.Delayed
			}
		}
		if rd.damaged {
			r.dead[shard] = append(r.dead[shard], r.damagedLetter(e))
			return nil
		}
		r.live[shard] = append(r.live[shard], e)
		return nil
	})
	if err != nil {
		return err
	}
	return states.Err()
}

// damagedLetter is what is left of a message whose record cannot be trusted.
func (r *recovery) damagedLetter(e *engine.Entry) *engine.Entry {
	return &engine.Entry{
		Seq: e.Seq, Place: e.Seq, ID: e.ID, EnqueuedAt: e.EnqueuedAt, State: engine.Dead, Born: r.now,
		Extra: &engine.Extra{Reason: driver.ReasonIntegrity, LastError: errDamaged.Error()},
	}
}

func (r *recovery) readDead() error {
	return r.each(deadKind, func(key, value []byte) error {
		shard, seq, ok := parseMessageKey(key)
		if !ok || !r.known(shard) {
			return nil
		}
		e := &engine.Entry{Seq: seq}
		rd := open(key, value)
		rd.dead(e)
		if rd.damaged {
			e = r.damagedLetter(e)
		}
		r.dead[shard] = append(r.dead[shard], e)
		return nil
	})
}

func (r *recovery) readKeys() error {
	return r.each(dedupKind, func(key, value []byte) error {
		queue, ends, digest, ok := parseDedupKey(key)
		q := r.queues[queue]
		if !ok || q == nil || ends <= r.now {
			return nil
		}
		if len(value) != 32+sumLen || string(sum(key, value[:32])) != string(value[32:]) {
			return damagedError("the record of a dedup key")
		}
		restored := host.RestoredKey{Key: digest, Ends: ends}
		copy(restored.Payload[:], value)
		copy(restored.ID[:], value[16:])
		q.Keys = append(q.Keys, restored)
		return nil
	})
}

func (r *recovery) known(shard host.ShardID) bool {
	q := r.queues[shard.Queue]
	return q != nil && int(shard.Shard) < max(q.Config.Shards, 1)
}

// assemble sorts what was read as the engine wants it.
func (r *recovery) assemble() {
	for id, q := range r.queues {
		q.Shards = make([][]*engine.Entry, max(q.Config.Shards, 1))
		for n := range q.Shards {
			shard := host.ShardID{Queue: id, Shard: uint16(n)}
			live, dead := r.live[shard], r.dead[shard]
			slices.SortFunc(live, func(a, b *engine.Entry) int { return cmp.Compare(a.Place, b.Place) })
			slices.SortStableFunc(dead, func(a, b *engine.Entry) int {
				return cmp.Or(cmp.Compare(a.Born, b.Born), cmp.Compare(a.Place, b.Place))
			})
			q.Shards[n] = append(live, dead...)
		}
	}
}
