package diskbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Report is the result of Check.
type Report struct {
	Queues   int
	Messages int // not dead
	Dead     int
	Keys     int // dedup keys
	// Schedules is how many schedules the queues have.
	Schedules int
	Slots     int // reply slots
	Orphans   int // records of queues that do not exist; they are left alone
	Damaged   int // messages, dead letters and answers whose content is lost
	// Problems are sentences, each about one record; an intact directory has none.
	// There are at most 100.
	Problems []string
}

// maxProblems bounds the list of problems in a Report.
const maxProblems = 100

// Check reads all of dir, a directory that no process may have open or a backup in one
// file, and verifies it: the checksums of files and records, that the indexes match the
// messages, and that the counts are right. It changes nothing, and blocks until it is done
// or ctx ends. An error means that it could not read to the end.
// Codes: ErrNotFound, ErrConflict (open in another process), ErrIntegrity,
// ErrUnavailable.
func Check(ctx context.Context, dir string, options *Options) (*Report, error) {
	s, err := openForReading(ctx, dir, options)
	if err != nil {
		return nil, err
	}
	c := &checker{ctx: ctx, store: s, report: &Report{}, counted: newLedger(), sizeless: make(map[host.ShardID]bool)}
	err = c.run()
	if err == nil {
		err = s.VerifyArchive(ctx)
	}
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return c.report, err
}

func openForReading(ctx context.Context, dir string, options *Options) (*store.Store, error) {
	var o Options
	if options != nil {
		o = *options
	}
	so := o.storeOptions(store.SyncEach())
	so.ReadOnly = true
	if isFile(&o, dir) {
		return store.OpenArchived(ctx, dir, so)
	}
	return store.Open(ctx, dir, so)
}

type checker struct {
	ctx       context.Context //nolint:containedctx // lives as long as one call
	store     *store.Store
	report    *Report
	recovered *recovery
	counted   ledger
	read      int
	// sizeless are the shards with a damaged message, whose size is unknown. The
	// recorded count of bytes includes it until the shard is empty.
	sizeless map[host.ShardID]bool
}

func (c *checker) run() error {
	if err := c.store.Verify(c.ctx); err != nil {
		return err
	}
	var err error
	if c.recovered, err = recoverAll(c.store, new(axis), engine.Moment{}); err != nil {
		return err
	}
	c.report.Queues, c.report.Orphans = len(c.recovered.queues), c.recovered.orphans.records()
	for _, step := range []struct {
		kind  byte
		check func(shard host.ShardID, key, value []byte)
	}{
		{messageKind, c.message},
		{stateKind, c.state},
		{leaseKind, c.lease},
		{placeKind, c.place},
		{dueKind, c.due},
		{alarmKind, c.due},
		{endKind, c.due},
		{groupKind, c.group},
		{levelKind, c.level},
		{uniqueKind, c.unique},
		{deadKind, c.dead},
		{deadIDKind, c.deadID},
		{leavingKind, c.leaving},
	} {
		if err := c.each(step.kind, step.check); err != nil {
			return err
		}
	}
	if err := c.recovered.each(dedupKind, func([]byte, []byte) error { c.report.Keys++; return c.ctx.Err() }); err != nil {
		return err
	}
	for _, q := range c.recovered.queues {
		c.report.Schedules += len(q.Schedules)
	}
	if err := c.slots(); err != nil {
		return err
	}
	c.counts()
	return nil
}

// each checks the records of a kind that belong to a queue.
func (c *checker) each(kind byte, check func(shard host.ShardID, key, value []byte)) error {
	return c.recovered.each(kind, func(key, value []byte) error {
		if c.read++; c.read%1024 == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if c.recovered.find(key) != nil { // otherwise it is an orphan
			shard, _ := parseShardKey(key)
			check(shard, key, value)
		}
		return nil
	})
}

func (c *checker) problem(format string, args ...any) {
	if len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
	}
}

func (c *checker) message(shard host.ShardID, key, value []byte) {
	c.report.Messages++
	e := readMessage(key, value)
	if e.Is(engine.Damaged) {
		c.report.Damaged++
		c.problem("message %d of %s is damaged", e.Seq, c.name(shard))
	}
	c.counted.change(shard).arrived(e)
	if e.Is(engine.Timed) && !e.Is(engine.Wall) && e.Due < e.Born {
		c.problem("message %d of %s is delayed until before it was sent", e.Seq, c.name(shard))
	}
	c.inGroup(shard, e)
	c.inLevel(shard, e)
	c.inUnique(shard, e)
}

// inLevel checks that a message is in the index by priority, if it has to be.
func (c *checker) inLevel(shard host.ShardID, e *engine.Entry) {
	indexed := c.recovered.queues[shard.Queue].Shards[shard.Shard].Totals.Indexed
	if indexed == 0 && e.Priority == 0 {
		return
	}
	if e = (&backlog{store: c.store, shard: shard}).load(e.Seq); e == nil || e.Is(unreadable) {
		return
	}
	if isIndexed(indexed, e, e.Place) && !c.has(appendLevelKey(nil, shard, e.Priority, e.Place)) {
		c.problem("message %d of %s is not in the index of its priority", e.Seq, c.name(shard))
	}
}

// inGroup checks that a message is in the index by group, if the queue has one.
func (c *checker) inGroup(shard host.ShardID, e *engine.Entry) {
	groups := groupsOf(c.recovered.queues[shard.Queue].Config)
	if e.Is(engine.Damaged) || !groups.index(e) {
		return
	}
	place := e.Seq
	if groups.fair { // a nack may have changed its place
		if e = (&backlog{store: c.store, shard: shard}).load(e.Seq); e == nil || e.Is(unreadable) {
			return
		}
		place = e.Place
	}
	if !c.has(appendGroupKey(nil, shard, groupOf(e), place)) {
		c.problem("message %d of %s is not in the index of its group", e.Seq, c.name(shard))
	}
}

func (c *checker) state(shard host.ShardID, key, value []byte) {
	e := c.load(shard, key, lastNumber(key))
	if e == nil || e.Is(engine.Damaged) {
		return
	}
	readState(e, key, value)
	switch {
	case e.Is(engine.Misplaced):
		c.problem("the state of message %d of %s is damaged", e.Seq, c.name(shard))
	case e.Place != e.Seq && !c.has(appendNumberKey(nil, placeKind, shard, e.Place)):
		c.problem("message %d of %s is not found at its place %d", e.Seq, c.name(shard), e.Place)
	}
	c.counted.change(shard).used(e)
}

func (c *checker) lease(shard host.ShardID, key, value []byte) {
	if e := c.load(shard, key, lastNumber(key)); e != nil && !e.Is(engine.Damaged) {
		readState(e, key, value)
		if e.Is(engine.Misplaced) {
			c.problem("the lease of message %d of %s is damaged", e.Seq, c.name(shard))
		}
	}
}

func (c *checker) place(shard host.ShardID, key, value []byte) {
	if len(value) != 8 {
		c.problem("place %d of %s is damaged", lastNumber(key), c.name(shard))
		return
	}
	seq := binary.BigEndian.Uint64(value)
	e := (&backlog{store: c.store, shard: shard}).load(seq)
	if e == nil || (e.Place != lastNumber(key) && !e.Is(engine.Damaged|engine.Misplaced)) {
		c.problem("place %d of %s belongs to message %d, which does not exist", lastNumber(key), c.name(shard), seq)
	}
}

// due checks the keys of the index by due time. Old records of it are harmless; see
// trimLocked.
func (c *checker) due(_ host.ShardID, key, _ []byte) {
	if len(key) != dueKeyLen {
		c.problem("the key %x has the wrong length", key)
	}
}

func (c *checker) group(shard host.ShardID, key, _ []byte) {
	if len(key) != groupKeyLen {
		c.problem("the key %x has the wrong length", key)
		return
	}
	if (&backlog{store: c.store, shard: shard}).atPlace(lastNumber(key)) == nil {
		c.problem("the record %x of %s belongs to a message that does not exist", key, c.name(shard))
	}
}

func (c *checker) level(shard host.ShardID, key, _ []byte) {
	if len(key) != levelKeyLen {
		c.problem("the key %x has the wrong length", key)
		return
	}
	if (&backlog{store: c.store, shard: shard}).atPlace(lastNumber(key)) == nil {
		c.problem("the record %x of %s belongs to a message that does not exist", key, c.name(shard))
	}
}

func (c *checker) dead(shard host.ShardID, key, value []byte) {
	c.report.Dead++
	e := readDead(key, value)
	a := c.counted.change(shard)
	a.Dead++
	a.Deaths = max(a.Deaths, e.Place)
	if e.Is(engine.Damaged) {
		c.report.Damaged++
		c.sizeless[shard] = true
	}
	found, err := c.store.Get(appendDeadIDKey(nil, shard, e.ID), nil)
	if err != nil || len(found) != 8 || binary.BigEndian.Uint64(found) != e.Place {
		c.problem("dead letter %s of %s is damaged or not found by its id", e.ID, c.name(shard))
	}
}

func (c *checker) deadID(shard host.ShardID, key, value []byte) {
	if len(value) != 8 || !c.has(appendNumberKey(nil, deadKind, shard, binary.BigEndian.Uint64(value))) {
		c.problem("the id %q of %s belongs to a dead letter that does not exist", key[shardKeyLen:], c.name(shard))
	}
}

func (c *checker) leaving(shard host.ShardID, key, value []byte) {
	if !c.has(appendDeadIDKey(nil, shard, string(value))) {
		c.problem("dead letter %d of %s is recorded as leaving, but does not exist", lastNumber(key), c.name(shard))
	}
}

// counts compares the records with the counts of the ledger.
func (c *checker) counts() {
	for id, q := range c.recovered.queues {
		for n := range q.Shards {
			shard := host.ShardID{Queue: id, Shard: uint16(n)}
			said, found := q.Shards[n].Totals, c.counted.at(shard).Totals
			if c.sizeless[shard] && said.Bytes > found.Bytes {
				said.Bytes = found.Bytes
			}
			if said.Messages != found.Messages || said.Dead != found.Dead || said.Bytes != found.Bytes {
				c.problem("%s should have %d messages of %d bytes and %d dead letters, but has %d of %d and %d",
					c.name(shard), said.Messages, said.Bytes, said.Dead, found.Messages, found.Bytes, found.Dead)
			}
			if said.NextSeq < found.NextSeq || said.Deaths < found.Deaths {
				c.problem("%s would assign numbers that are in use", c.name(shard))
			}
		}
	}
}

// load returns the message of a record, and adds a problem if it does not exist.
func (c *checker) load(shard host.ShardID, key []byte, seq uint64) *engine.Entry {
	message := appendNumberKey(nil, messageKind, shard, seq)
	value, err := c.store.Get(message, nil)
	if err != nil {
		c.problem("the record %x of %s belongs to a message that does not exist", key, c.name(shard))
		return nil
	}
	return readMessage(message, value)
}

func (c *checker) has(key []byte) bool {
	_, err := c.store.Get(key, nil)
	return !errors.Is(err, driver.ErrNotFound)
}

func (c *checker) name(shard host.ShardID) string {
	q := c.recovered.queues[shard.Queue]
	if len(q.Shards) == 1 {
		return fmt.Sprintf("queue %q", q.Name)
	}
	return fmt.Sprintf("shard %d of queue %q", shard.Shard, q.Name)
}
