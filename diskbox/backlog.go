package diskbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
)

// backlog reads the messages of one shard from the store. The caller holds the lock of
// the shard.
type backlog struct {
	journal *journal // nil: the store is read-only
	store   *store.Store
	shard   host.ShardID
	key     []byte // reused
	err     error  // the first error; all later reads end early
}

// Reader returns a reader of the recorded messages of a shard.
func (j *journal) Reader(shard host.ShardID) engine.Reader {
	return &backlog{journal: j, store: j.store, shard: shard}
}

func (b *backlog) Err() error { return b.err }

// fail remembers the first error, and reports whether err is one. ErrNotFound is not.
func (b *backlog) fail(err error) bool {
	if err == nil || errors.Is(err, driver.ErrNotFound) {
		return false
	}
	if b.err == nil {
		b.err = err
	}
	return true
}

// upToDate makes all recorded operations readable. It returns false if that, or an
// earlier read, has failed.
func (b *backlog) upToDate() bool {
	return b.err == nil && (b.journal == nil || !b.fail(b.journal.writeThrough()))
}

// each yields the keys and values from the key from on that share its first prefixLen
// bytes.
func (b *backlog) each(from []byte, prefixLen int) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if !b.upToDate() {
			return
		}
		it := b.store.Iterate(from, successor(from[:prefixLen]))
		for it.Next() {
			if !yield(it.Key(), it.Value()) {
				break
			}
		}
		b.fail(it.Close())
	}
}

func (b *backlog) number(kind byte, number uint64) []byte {
	return appendNumberKey(nil, kind, b.shard, number)
}

// Waiting merges the messages by number, most of which are at their original place, with
// the messages that have another place.
func (b *backlog) Waiting(from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		var seen []uint64 // numbers of unreadable messages that were yielded
		next, stop := iter.Pull(b.moved(from, &seen))
		defer stop()
		moved, more := next()
		for e := range b.Aged(from) {
			if slices.Contains(seen, e.Seq) || (e.Place != e.Seq && (e.Place < from || b.isAt(e))) {
				continue // moved yields it
			}
			if e.Place != e.Seq { // the record of its place is missing
				e.Place, e.Marks = e.Seq, e.Marks|engine.Misplaced
			}
			if e.Is(unreadable) {
				seen = append(seen, e.Seq)
			}
			for ; more && moved.Place < e.Place; moved, more = next() {
				if !yield(moved) {
					return
				}
			}
			if !yield(e) {
				return
			}
		}
		for ; more && b.err == nil; moved, more = next() {
			if !yield(moved) {
				return
			}
		}
	}
}

// moved yields the messages whose place is not their number. Unreadable messages, whose
// place is unknown, it yields at the place of the index record, unless they are in seen.
func (b *backlog) moved(from uint64, seen *[]uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		for key, value := range b.each(b.number(placeKind, from), shardKeyLen) {
			if len(value) != 8 {
				continue
			}
			e := b.load(binary.BigEndian.Uint64(value))
			if e != nil && e.Is(unreadable) && !slices.Contains(*seen, e.Seq) {
				e.Place = lastNumber(key)
				*seen = append(*seen, e.Seq)
			}
			if e != nil && e.Place == lastNumber(key) && !yield(e) {
				return
			}
		}
	}
}

// isAt reports whether the index record of a message's place exists.
func (b *backlog) isAt(e *engine.Entry) bool {
	value, err := b.store.Get(b.number(placeKind, e.Place), nil)
	if b.fail(err) {
		return true
	}
	return err == nil && len(value) == 8 && binary.BigEndian.Uint64(value) == e.Seq
}

// Aged merges the messages by number with their states.
func (b *backlog) Aged(from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		next, stop := iter.Pull2(b.each(b.number(stateKind, from), shardKeyLen))
		defer stop()
		state, value, more := next()
		for key, message := range b.each(b.number(messageKind, from), shardKeyLen) {
			seq := lastNumber(key)
			e := readMessage(key, message)
			for more && lastNumber(state) < seq {
				state, value, more = next()
			}
			if more && lastNumber(state) == seq {
				readState(e, state, value)
			}
			b.findDue(e)
			if !yield(e) {
				return
			}
		}
	}
}

// load returns a message that is not dead, or nil if it does not exist.
func (b *backlog) load(seq uint64) *engine.Entry {
	b.key = appendNumberKey(b.key[:0], messageKind, b.shard, seq)
	value, err := b.store.Get(b.key, nil)
	if err != nil {
		b.fail(err)
		return nil
	}
	e := readMessage(b.key, value)
	b.key = appendNumberKey(b.key[:0], stateKind, b.shard, seq)
	value, err = b.store.Get(b.key, nil)
	if err == nil {
		readState(e, b.key, value)
	} else if b.fail(err) {
		return nil
	}
	b.findDue(e)
	return e
}

// findDue sets Due of an unreadable message from the index by due time. It reads the whole
// index, which is acceptable because damage is rare.
func (b *backlog) findDue(e *engine.Entry) {
	if !e.Is(unreadable) {
		return
	}
	for kind, marks := range dueMarks {
		from := appendShardKey(nil, kind, b.shard)
		it := b.store.Iterate(from, successor(from))
		for it.Next() {
			if key := it.Key(); len(key) == dueKeyLen && lastNumber(key) == e.Seq && len(it.Value()) == 0 {
				e.Due = parseInstant(key[shardKeyLen:])
				e.Marks |= marks
			}
		}
		b.fail(it.Close())
	}
}

// dueMarks are the marks of delayed messages by the kind of their index record.
var dueMarks = map[byte]engine.Marks{dueKind: engine.Timed, alarmKind: engine.Timed | engine.Wall}

func (b *backlog) Delayed(wall bool, from engine.DuePoint) iter.Seq[*engine.Entry] {
	kind := byte(dueKind)
	if wall {
		kind = alarmKind
	}
	return func(yield func(*engine.Entry) bool) {
		for key, value := range b.each(appendDueKey(nil, kind, b.shard, from.Due, from.Seq), shardKeyLen) {
			if len(key) != dueKeyLen || len(value) > 0 { // estimated
				continue
			}
			due := parseInstant(key[shardKeyLen:])
			e := b.load(lastNumber(key))
			if e != nil && e.Due == due && e.Is(engine.Wall) == wall && !yield(e) {
				return
			}
		}
	}
}

func (b *backlog) Ends(from engine.DuePoint) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		for key := range b.each(appendDueKey(nil, endKind, b.shard, from.Due, from.Seq), shardKeyLen) {
			if len(key) != dueKeyLen {
				continue
			}
			ends := parseInstant(key[shardKeyLen:])
			e := b.load(lastNumber(key)) // nil if a version that knows no times to live has removed it
			if e != nil && !e.Is(unreadable) && hasEnd(e) && engine.Instant(e.Extra.Life.Ends) == ends && !yield(e) {
				return
			}
		}
	}
}

func (b *backlog) Dead(from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		for key, value := range b.each(b.number(deadKind, from), shardKeyLen) {
			e := readDead(key, value)
			if e.Is(engine.Damaged) && e.ID == "" {
				e.ID = b.idOfDeath(e.Place)
			}
			if !yield(e) {
				return
			}
		}
	}
}

func (b *backlog) FindDead(id string) *engine.Entry {
	if !b.upToDate() {
		return nil
	}
	number, ok := b.deathOf(id)
	if !ok {
		death, err := b.store.Get(appendDeadIDKey(nil, b.shard, id), nil)
		if err != nil || len(death) != 8 {
			b.fail(err)
			return nil
		}
		number = binary.BigEndian.Uint64(death)
	}
	key := b.number(deadKind, number)
	value, err := b.store.Get(key, nil)
	if err != nil {
		b.fail(err)
		return nil
	}
	e := readDead(key, value)
	e.ID = id
	return e
}

// idOfDeath returns the id of an unreadable dead letter from the index by id, or an id
// made of its shard and place.
func (b *backlog) idOfDeath(death uint64) string {
	from := appendShardKey(nil, deadIDKind, b.shard)
	it := b.store.Iterate(from, successor(from))
	id := ""
	for id == "" && it.Next() {
		if value := it.Value(); len(value) == 8 && binary.BigEndian.Uint64(value) == death {
			id = string(it.Key()[shardKeyLen:])
		}
	}
	b.fail(it.Close())
	if id == "" {
		id = fmt.Sprintf("%s%d-%d", damagedLetter, b.shard.Shard, death)
	}
	return id
}

// damagedLetter is the prefix of the id of a dead letter that has lost its own. The shard
// and the place follow.
const damagedLetter = "damaged-letter-"

// deathOf parses an id that idOfDeath has made.
func (b *backlog) deathOf(id string) (death uint64, ok bool) {
	var shard uint16
	n, err := fmt.Sscanf(id, damagedLetter+"%d-%d", &shard, &death)
	return death, n == 2 && err == nil && shard == b.shard.Shard
}

// readMessage decodes the record of a message as it was sent.
func readMessage(key, value []byte) *engine.Entry {
	seq := lastNumber(key)
	e := &engine.Entry{Seq: seq, Place: seq}
	r := openMessage(key, value)
	r.message(e)
	r.further(e)
	if r.damaged {
		return damaged(key)
	}
	return e
}

// unreadable are the marks of messages that cannot be read completely.
const unreadable = engine.Damaged | engine.Misplaced

// damaged returns an entry for a message whose record is damaged. Its id is made of its
// number, so that it can be discarded.
func damaged(key []byte) *engine.Entry {
	shard, _ := parseShardKey(key)
	seq := lastNumber(key)
	id := fmt.Sprintf("damaged-%d-%d", shard.Shard, seq)
	return &engine.Entry{Seq: seq, Place: seq, Content: engine.Content{ID: id}, Marks: engine.Damaged}
}

// readState applies the state record of a message.
func readState(e *engine.Entry, key, value []byte) {
	if e.Is(engine.Damaged) {
		return
	}
	changed := *e
	r := open(key, value)
	r.state(&changed)
	if r.damaged {
		e.Marks = engine.Misplaced
		return
	}
	*e = changed
}

func readDead(key, value []byte) *engine.Entry {
	e := &engine.Entry{Place: lastNumber(key)}
	r := openMessage(key, value)
	r.dead(e)
	if r.damaged {
		e = &engine.Entry{Place: e.Place, Marks: engine.Damaged, Content: engine.Content{Extra: &engine.Extra{
			Reason: driver.ReasonIntegrity, LastError: errDamaged.Error(),
		}}}
	}
	return e
}
