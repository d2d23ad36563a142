package diskbox

import (
	"encoding/binary"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// groupNotes say which messages of a queue are found by their group.
type groupNotes struct {
	strict bool // all of them
	fair   bool // those that have one
}

func groupsOf(config driver.Config) groupNotes {
	return groupNotes{strict: config.StrictGroups, fair: config.FairGroups}
}

// index reports whether a message is found by its group.
func (n groupNotes) index(e *engine.Entry) bool {
	return n.strict || (n.fair && groupOf(e) != "")
}

func groupOf(e *engine.Entry) string {
	if e.Extra == nil {
		return ""
	}
	return e.Extra.Group
}

// indexGroup lets a message be found by its group, at its place.
func (j *journal) indexGroup(shard host.ShardID, e *engine.Entry) {
	if !j.queues[shard.Queue].groups.index(e) {
		return
	}
	j.key = appendGroupKey(j.key[:0], shard, groupOf(e), e.Place)
	j.batch.Set(j.key, nil)
}

// forgetGroup undoes that for a message that was at a place.
func (j *journal) forgetGroup(shard host.ShardID, e *engine.Entry, place uint64) {
	if j.queues[shard.Queue].groups.index(e) {
		j.key = appendGroupKey(j.key[:0], shard, groupOf(e), place)
		j.batch.Delete(j.key)
	}
}

// standing returns the message that waits at a place, or nil: the one that was sent
// to it, or one that was moved there.
func (s *backlog) standing(place uint64) *engine.Entry {
	e := s.load(place)
	if e == nil {
		s.key = appendNumberKey(s.key[:0], placeKind, s.shard, place)
		value, err := s.store.Get(s.key, nil)
		if s.fail(err) || err != nil || len(value) != 8 {
			return nil
		}
		e = s.load(binary.BigEndian.Uint64(value))
	}
	if e != nil && e.Is(unreadable) {
		e.Place = place
	}
	if e == nil || e.Place != place {
		return nil
	}
	return e
}

func (s *backlog) Group(name string, from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		if s.journal != nil { // what is below is gone, and need not be read over
			s.journal.mu.Lock()
			from = max(from, s.journal.ledger.at(s.shard).trimmed)
			s.journal.mu.Unlock()
		}
		for key := range s.each(appendGroupKey(nil, s.shard, name, from), groupKeyLen-8) {
			if e := s.standing(lastNumber(key)); e != nil && !yield(e) {
				return
			}
		}
	}
}
