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

// shelf reads the messages of one shard from the store. Whoever uses it holds
// the shard.
type backlog struct {
	journal *journal // nil: the store is only read
	store   *store.Store
	shard   host.ShardID
	key     []byte // reused
	err     error  // why it cannot be read any more
}

// Reader returns a reader of what was recorded about a shard.
func (j *journal) Reader(shard host.ShardID) engine.Reader {
	return &backlog{journal: j, store: j.store, shard: shard}
}

func (s *backlog) Err() error { return s.err }

// fail remembers the first error. That something is not there is none.
func (s *backlog) fail(err error) bool {
	if err == nil || errors.Is(err, driver.ErrNotFound) {
		return false
	}
	if s.err == nil {
		s.err = err
	}
	return true
}

// upToDate makes everything that was recorded readable. It returns false if
// that, or anything before it, has failed.
func (s *backlog) upToDate() bool {
	return s.err == nil && (s.journal == nil || !s.fail(s.journal.writeThrough()))
}

// each yields the keys and values of a kind, from one that begins with the
// kind and the shard on.
func (s *backlog) each(from []byte, prefixLen int) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if !s.upToDate() {
			return
		}
		it := s.store.Iterate(from, successor(from[:prefixLen]))
		for it.Next() {
			if !yield(it.Key(), it.Value()) {
				break
			}
		}
		s.fail(it.Close())
	}
}

func (s *backlog) number(kind byte, number uint64) []byte {
	return appendNumberKey(nil, kind, s.shard, number)
}

// Waiting walks over the messages, of which most are at the place they were
// sent to, and beside them over those that were given another.
func (s *backlog) Waiting(from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		var told []uint64 // of those whose place is not known
		next, stop := iter.Pull(s.moved(from, &told))
		defer stop()
		moved, more := next()
		for e := range s.Aged(from) {
			if slices.Contains(told, e.Seq) || (e.Place != e.Seq && (e.Place < from || s.isAt(e))) {
				continue // it is among those that were moved
			}
			if e.Place != e.Seq { // nobody would find it there
				e.Place, e.Marks = e.Seq, e.Marks|engine.Misplaced
			}
			if e.Is(unreadable) {
				told = append(told, e.Seq)
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
		for ; more && s.err == nil; moved, more = next() {
			if !yield(moved) {
				return
			}
		}
	}
}

// moved yields the messages that wait at another place than they were sent to.
// Those whose place is not known, because they are damaged, it yields here unless
// they were told already.
func (s *backlog) moved(from uint64, told *[]uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		for key, value := range s.each(s.number(placeKind, from), shardKeyLen) {
			if len(value) != 8 {
				continue
			}
			e := s.load(binary.BigEndian.Uint64(value))
			if e != nil && e.Is(unreadable) && !slices.Contains(*told, e.Seq) {
				e.Place = lastNumber(key)
				*told = append(*told, e.Seq)
			}
			if e != nil && e.Place == lastNumber(key) && !yield(e) {
				return
			}
		}
	}
}

// isAt reports whether a message that was moved is found at its place.
func (s *backlog) isAt(e *engine.Entry) bool {
	value, err := s.store.Get(s.number(placeKind, e.Place), nil)
	if s.fail(err) {
		return true
	}
	return err == nil && len(value) == 8 && binary.BigEndian.Uint64(value) == e.Seq
}

// Aged walks over the messages and, side by side, over what has become of them.
func (s *backlog) Aged(from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		next, stop := iter.Pull2(s.each(s.number(stateKind, from), shardKeyLen))
		defer stop()
		state, value, more := next()
		for key, message := range s.each(s.number(messageKind, from), shardKeyLen) {
			seq := lastNumber(key)
			e := readMessage(key, message)
			for more && lastNumber(state) < seq {
				state, value, more = next()
			}
			if more && lastNumber(state) == seq {
				readState(e, state, value)
			}
			s.findDue(e)
			if !yield(e) {
				return
			}
		}
	}
}

// load returns a message that is not dead, or nil if it is not there.
func (s *backlog) load(seq uint64) *engine.Entry {
	s.key = appendNumberKey(s.key[:0], messageKind, s.shard, seq)
	value, err := s.store.Get(s.key, nil)
	if err != nil {
		s.fail(err)
		return nil
	}
	e := readMessage(s.key, value)
	s.key = appendNumberKey(s.key[:0], stateKind, s.shard, seq)
	value, err = s.store.Get(s.key, nil)
	if err == nil {
		readState(e, s.key, value)
	} else if s.fail(err) {
		return nil
	}
	s.findDue(e)
	return e
}

// findDue sets when a message that cannot be read was due last, as the notes of
// that say. It reads them all, which is bearable for something so rare.
func (s *backlog) findDue(e *engine.Entry) {
	if !e.Is(unreadable) {
		return
	}
	from := appendShardKey(nil, dueKind, s.shard)
	it := s.store.Iterate(from, successor(from))
	for it.Next() {
		if key := it.Key(); len(key) == dueKeyLen && lastNumber(key) == e.Seq {
			e.Due = parseInstant(key[shardKeyLen:])
			e.Marks |= engine.Timed
		}
	}
	s.fail(it.Close())
}

func (s *backlog) Delayed(from engine.DuePoint) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		for key := range s.each(appendDueKey(nil, s.shard, from.Due, from.Seq), shardKeyLen) {
			if len(key) != dueKeyLen {
				continue
			}
			due := parseInstant(key[shardKeyLen:])
			e := s.load(lastNumber(key))
			if e != nil && e.Due == due && !yield(e) {
				return
			}
		}
	}
}

func (s *backlog) Dead(from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		for key, value := range s.each(s.number(deadKind, from), shardKeyLen) {
			e := readDead(key, value)
			if e.Is(engine.Damaged) && e.ID == "" {
				e.ID = s.idOfDeath(e.Place)
			}
			if !yield(e) {
				return
			}
		}
	}
}

func (s *backlog) FindDead(id string) *engine.Entry {
	if !s.upToDate() {
		return nil
	}
	number, ok := s.deathOf(id)
	if !ok {
		death, err := s.store.Get(appendDeadIDKey(nil, s.shard, id), nil)
		if err != nil || len(death) != 8 {
			s.fail(err)
			return nil
		}
		number = binary.BigEndian.Uint64(death)
	}
	key := s.number(deadKind, number)
	value, err := s.store.Get(key, nil)
	if err != nil {
		s.fail(err)
		return nil
	}
	e := readDead(key, value)
	e.ID = id
	return e
}

// idOfDeath returns the id of a dead letter that cannot be read, from the notes
// by which letters are found.
func (s *backlog) idOfDeath(death uint64) string {
	from := appendShardKey(nil, deadIDKind, s.shard)
	it := s.store.Iterate(from, successor(from))
	id := ""
	for id == "" && it.Next() {
		if value := it.Value(); len(value) == 8 && binary.BigEndian.Uint64(value) == death {
			id = string(it.Key()[shardKeyLen:])
		}
	}
	s.fail(it.Close())
	if id == "" {
		id = fmt.Sprintf("%s%d-%d", damagedLetter, s.shard.Shard, death)
	}
	return id
}

// damagedLetter begins the id of a dead letter that has lost its own. Its shard
// and its death follow.
const damagedLetter = "damaged-letter-"

// deathOf returns the death that an id names, as idOfDeath has made it.
func (s *backlog) deathOf(id string) (death uint64, ok bool) {
	var shard uint16
	n, err := fmt.Sscanf(id, damagedLetter+"%d-%d", &shard, &death)
	return death, n == 2 && err == nil && shard == s.shard.Shard
}

// readMessage makes an entry of a message as it was sent.
func readMessage(key, value []byte) *engine.Entry {
	seq := lastNumber(key)
	e := &engine.Entry{Seq: seq, Place: seq}
	r := open(key, value)
	r.message(e)
	if r.damaged {
		return damaged(key)
	}
	return e
}

// unreadable are the marks of messages of which not everything is known.
const unreadable = engine.Damaged | engine.Misplaced

// damaged is what is left of a message whose record cannot be trusted: a number,
// of which an id is made, so that it can be discarded.
func damaged(key []byte) *engine.Entry {
	shard, _ := parseShardKey(key)
	seq := lastNumber(key)
	return &engine.Entry{Seq: seq, Place: seq, ID: fmt.Sprintf("damaged-%d-%d", shard.Shard, seq), Marks: engine.Damaged}
}

// readState adds what has become of it.
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
	r := open(key, value)
	r.dead(e)
	if r.damaged {
		e = &engine.Entry{Place: e.Place, Marks: engine.Damaged, Extra: &engine.Extra{
			Reason: driver.ReasonIntegrity, LastError: errDamaged.Error(),
		}}
	}
	return e
}
