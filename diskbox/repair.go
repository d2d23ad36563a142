package diskbox

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Repaired is the result of Repair.
type Repaired struct {
	// Rebuilt counts the index records and counts that were written from the messages, and
	// Removed the records that belonged to nothing or were damaged beyond use.
	Rebuilt, Removed int
	// Damaged counts the messages, dead letters and answers whose content is lost. They are left as
	// they are: Open makes dead letters with reason integrity of the messages.
	Damaged int
}

// Repair makes the records in dir consistent with the messages in it: it rebuilds indexes and
// counts, and removes records that belong to no message, and damaged leases, dedup keys,
// schedules and reply slots.
// It never removes a message. A message whose lease was damaged is ready again, and one whose
// dedup key was damaged can be sent once more. No process may have dir open. It blocks until it
// is done or ctx ends; what it did until then is kept, and it can be repeated.
// Codes: those of Open; ErrIntegrity means damage that Repair cannot undo.
func Repair(ctx context.Context, dir string, options *Options) (*Repaired, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, dir, o.storeOptions(store.SyncEach()))
	if err != nil {
		return nil, err
	}
	r := &repair{ctx: ctx, store: s, batch: s.NewBatch(), counted: newLedger(), leveled: make(map[host.ShardID]bool), found: recovery{store: s, queues: make(map[uint32]*host.RestoredQueue)}}
	err = r.run()
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return &r.result, err
}

// repair is one run of Repair.
type repair struct {
	ctx     context.Context //nolint:containedctx // lives as long as one call
	store   *store.Store
	batch   *store.Batch
	found   recovery // only the queues
	counted ledger
	leveled map[host.ShardID]bool // has messages with priorities
	result  Repaired
}

// repairBatch is how many changes are committed together.
const repairBatch = 1000

func (r *repair) run() error {
	for _, read := range []func() error{r.found.readMeta, r.found.readQueues} {
		if err := read(); err != nil {
			return err // without these the rest cannot be read
		}
	}
	for _, q := range r.found.queues {
		q.Shards = make([]host.RestoredShard, max(q.Config.Shards, 1))
	}
	for _, step := range []struct {
		kind byte
		do   func(shard host.ShardID, key, value []byte) error
	}{
		// what is wrong is removed first, and then rebuilt
		{stateKind, r.ofMessage}, {leaseKind, r.lease}, {placeKind, r.place},
		{groupKind, r.group}, {levelKind, r.level}, {uniqueKind, r.unique}, {deadIDKind, r.deadID}, {leavingKind, r.leaving},
		{messageKind, r.message}, {deadKind, r.dead},
	} {
		if err := errors.Join(r.each(step.kind, step.do), r.commit(0)); err != nil {
			return err
		}
	}
	if err := errors.Join(r.found.each(dedupKind, r.dedup), r.found.each(scheduleKind, r.schedule),
		r.found.each(slotKind, r.slot), r.found.each(answerKind, r.answer)); err != nil {
		return err
	}
	if err := r.found.eachShard(r.counts); err != nil {
		return err
	}
	return r.commit(0)
}

// each calls do for the records of a kind that belong to a queue.
func (r *repair) each(kind byte, do func(shard host.ShardID, key, value []byte) error) error {
	return r.found.each(kind, func(key, value []byte) error {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		shard, ok := parseShardKey(key)
		if !ok || r.found.find(key) == nil { // an orphan
			return nil
		}
		return do(shard, key, value)
	})
}

// commit commits the changes if there are more than this many.
func (r *repair) commit(more int) error {
	if r.batch.Len() <= more {
		return nil
	}
	return r.store.Commit(r.batch, true)
}

// want makes sure that a record exists.
func (r *repair) want(key, value []byte) error {
	got, err := r.store.Get(key, nil)
	if err == nil && string(got) == string(value) {
		return nil
	}
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	r.result.Rebuilt++
	r.batch.Set(key, value)
	return r.commit(repairBatch)
}

func (r *repair) remove(key []byte) error {
	r.result.Removed++
	r.batch.Delete(key)
	return r.commit(repairBatch)
}

// removeUnless removes a record that belongs to another one which does not exist.
func (r *repair) removeUnless(key, owner []byte) error {
	_, err := r.store.Get(owner, nil)
	if errors.Is(err, driver.ErrNotFound) {
		return r.remove(key)
	}
	return err
}

func (r *repair) backlog(shard host.ShardID) *backlog { return &backlog{store: r.store, shard: shard} }

// message counts a message and rebuilds its index records.
func (r *repair) message(shard host.ShardID, key, _ []byte) error {
	b := r.backlog(shard)
	e := b.load(lastNumber(key))
	if e == nil {
		return b.err
	}
	r.counted.change(shard).arrived(e)
	if e.Is(unreadable) {
		if e.Is(engine.Damaged) {
			r.result.Damaged++
		}
		return nil
	}
	if e.Place != e.Seq {
		if err := r.want(appendNumberKey(nil, placeKind, shard, e.Place), binary.BigEndian.AppendUint64(nil, e.Seq)); err != nil {
			return err
		}
	}
	if groupsOf(r.found.queues[shard.Queue].Config).index(e) {
		if err := r.want(appendGroupKey(nil, shard, groupOf(e), e.Place), nil); err != nil {
			return err
		}
	}
	if err := r.wantUnique(shard, e); err != nil {
		return err
	}
	if isIndexed(r.said(shard).Indexed, e, e.Place) {
		r.leveled[shard] = r.leveled[shard] || e.Priority > 0
		return r.want(appendLevelKey(nil, shard, e.Priority, e.Place), nil)
	}
	return nil
}

// said returns the recorded counts of a shard; they are empty if the record is damaged.
func (r *repair) said(shard host.ShardID) engine.Totals {
	key := appendShardKey(nil, countKind, shard)
	value, err := r.store.Get(key, nil)
	if rd := open(key, value); err == nil && !rd.damaged {
		return rd.totals()
	}
	return engine.Totals{}
}

// ofMessage removes a record that has the number of a message which does not exist.
func (r *repair) ofMessage(shard host.ShardID, key, _ []byte) error {
	return r.removeUnless(key, appendNumberKey(nil, messageKind, shard, lastNumber(key)))
}

func (r *repair) lease(shard host.ShardID, key, value []byte) error {
	e := engine.Entry{}
	if readState(&e, key, value); e.Is(engine.Misplaced) {
		return r.remove(key)
	}
	return r.ofMessage(shard, key, value)
}

func (r *repair) place(shard host.ShardID, key, value []byte) error {
	if len(value) != 8 {
		return r.remove(key)
	}
	b := r.backlog(shard)
	e := b.load(binary.BigEndian.Uint64(value))
	if b.err == nil && (e == nil || (e.Place != lastNumber(key) && !e.Is(unreadable))) {
		return r.remove(key)
	}
	return b.err
}

func (r *repair) group(shard host.ShardID, key, _ []byte) error {
	b := r.backlog(shard)
	if len(key) != groupKeyLen || (b.atPlace(lastNumber(key)) == nil && b.err == nil) {
		return r.remove(key)
	}
	return b.err
}

func (r *repair) level(shard host.ShardID, key, _ []byte) error {
	b := r.backlog(shard)
	if len(key) != levelKeyLen {
		return r.remove(key)
	}
	e := b.atPlace(lastNumber(key))
	if b.err == nil && (e == nil || (e.Priority != key[shardKeyLen] && !e.Is(unreadable))) {
		return r.remove(key)
	}
	return b.err
}

// dead counts a dead letter and rebuilds its record by id.
func (r *repair) dead(shard host.ShardID, key, value []byte) error {
	e := readDead(key, value)
	a := r.counted.change(shard)
	a.Dead++
	a.Deaths = max(a.Deaths, e.Place)
	if e.Is(engine.Damaged) {
		r.result.Damaged++
	}
	if e.ID == "" {
		return nil
	}
	return r.want(appendDeadIDKey(nil, shard, e.ID), binary.BigEndian.AppendUint64(nil, e.Place))
}

func (r *repair) deadID(shard host.ShardID, key, value []byte) error {
	if len(value) != 8 {
		return r.remove(key)
	}
	return r.removeUnless(key, appendNumberKey(nil, deadKind, shard, binary.BigEndian.Uint64(value)))
}

func (r *repair) leaving(shard host.ShardID, key, _ []byte) error {
	return r.removeUnless(key, appendNumberKey(nil, deadKind, shard, lastNumber(key)))
}

func (r *repair) dedup(key, value []byte) error {
	if _, ok := sealed(key, value); len(key) == dedupKeyLen && (!ok || len(value) != 32+sumLen) {
		return r.remove(key)
	}
	return nil
}

// unknownNumbers is added to the highest number found where the record of the numbers that were
// assigned is damaged, so that those of messages that are gone are not assigned again.
const unknownNumbers = 1 << 32

// counts writes the counts of a shard.
func (r *repair) counts(shard host.ShardID, _ *host.RestoredShard) error {
	key := appendShardKey(nil, countKind, shard)
	totals := r.counted.at(shard).Totals
	value, err := r.store.Get(key, nil)
	switch {
	case errors.Is(err, driver.ErrNotFound) && totals == engine.Totals{}:
		return nil // never used
	case err != nil && !errors.Is(err, driver.ErrNotFound):
		return err
	}
	if rd := open(key, value); rd.damaged {
		totals.NextSeq += unknownNumbers
		totals.Deaths += unknownNumbers
	} else {
		said := rd.totals()
		totals.NextSeq, totals.Deaths = max(totals.NextSeq, said.NextSeq), max(totals.Deaths, said.Deaths)
		totals.Indexed = said.Indexed
	}
	if totals.Indexed == 0 && r.leveled[shard] {
		totals.Indexed = totals.NextSeq // those of priority 0 before it are not indexed
	}
	if totals.Messages == 0 {
		totals.Indexed = 0
	}
	var w writer
	w.begin(key)
	w.totals(&totals)
	return r.want(key, slices.Clone(w.end()))
}
