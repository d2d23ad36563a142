package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A message can have a unique key, and holds it from when it arrives until it is acked, dies
// or is removed. Shard.holders finds the message that holds a key, without a search. The owner
// asks Holder before it stages a message with a key; a message that arrives while another one
// holds its key, such as a forwarded dead letter, does not hold it.
//
// With a backlog, the owner records which messages hold their keys, and gives them back with
// RestoreKey.

// Unique is the unique key of a message.
type Unique struct {
	Key Digest
	// Held: the message holds the key. It is set when the message arrives, and means nothing
	// for a dead letter.
	Held bool
	// Replaced: the message was replaced. Late receipts of it are refused, because they may be
	// of a delivery with another content.
	Replaced bool
}

// holder is a message that holds its key.
type holder struct {
	seq   uint64
	id    string
	entry *Entry // without a backlog, and not in flight: the message
}

// unique returns the unique key of e, or nil.
func (e *Entry) unique() *Unique {
	if e.Extra == nil {
		return nil
	}
	return e.Extra.Unique
}

// HoldsKey reports whether e, which is not dead, holds its unique key.
func (e *Entry) HoldsKey() bool {
	u := e.unique()
	return u != nil && u.Held
}

// Holder returns the id of the message that holds a key; ok is false if none does.
func (s *Shard) Holder(now Moment, key Digest) (id string, ok bool) {
	s.Advance(now)
	h, ok := s.holders[key]
	return h.id, ok
}

// KeysHeld returns how many keys are held, as of the last Advance.
func (s *Shard) KeysHeld() int { return len(s.holders) }

// claim lets a message that arrives hold its key, unless another one holds it. The effects so
// far are recorded first: one of them may be the end of the message that held it.
func (s *Shard) claim(e *Entry) {
	if s.window != nil {
		s.backlog()
	}
	key := e.Extra.Unique.Key
	_, taken := s.holders[key]
	e.Extra.Unique = &Unique{Key: key, Held: !taken}
	if !taken {
		s.setHolder(key, e)
	}
}

func (s *Shard) setHolder(key Digest, e *Entry) {
	if s.holders == nil {
		s.holders = make(map[Digest]holder)
	}
	h := holder{seq: e.Seq, id: e.ID, entry: e}
	if s.window != nil {
		h.id, h.entry = strings.Clone(e.ID), nil // an id may share its memory with a body
	}
	s.holders[key] = h
}

// RestoreKey says that a message holds a key. It is called after Restore.
func (s *Shard) RestoreKey(key Digest, seq uint64, id string) {
	s.setHolder(key, &Entry{Seq: seq, Content: Content{ID: id}})
}

// follow notes where a message is that holds its key and begins to wait.
func (s *Shard) follow(e *Entry) {
	if e.HoldsKey() && s.window == nil {
		s.setHolder(e.Extra.Unique.Key, e)
	}
}

// letGo lets the key of a message that leaves go. Of a damaged one the key is not known.
func (s *Shard) letGo(e *Entry) {
	if u := e.unique(); u != nil {
		if s.holders[u.Key].seq == e.Seq {
			delete(s.holders, u.Key)
		}
	} else if e.Is(Damaged) {
		for key, h := range s.holders {
			if h.seq == e.Seq {
				delete(s.holders, key)
			}
		}
	}
	if len(s.holders) == 0 {
		s.holders = nil
	}
}

// FindHolder returns the message that holds a key, and its state: Gone if none does, Staged if
// the message is between two states. A ready or delayed one is for Replace, before any other
// call.
func (s *Shard) FindHolder(now Moment, key Digest) (*Entry, State) {
	s.Advance(now)
	h, ok := s.holders[key]
	if !ok {
		return nil, Gone
	}
	if e := s.inFlight.get(h.seq); e != nil {
		return e, e.State
	}
	if s.window == nil {
		return h.entry, h.entry.State
	}
	if e := s.findInBacklog(h.seq); e != nil {
		return s.found(e)
	}
	if _, ok = s.holders[key]; !ok { // it is damaged, and has just died
		return nil, Gone
	}
	return nil, Staged
}

// Replace gives a message that FindHolder has found waiting another content, and another due
// time: content.Extra.DeliverAt if that is set, or after delay. It keeps its id, place, group,
// priority and key, and what is known of its deliveries. Its age and its time to live count from when it is
// due, and late receipts of it are refused from now on. It returns ErrFull if the body does not fit; then nothing changes. The content belongs to
// the shard from now on.
func (s *Shard) Replace(now Moment, e *Entry, content Content, delay time.Duration) error {
	size, grows := len(content.Body), len(content.Body)-int(e.Size)
	if grows > 0 && !s.FitAll(0, grows) {
		return driver.ErrFull
	}
	extra := *e.Extra
	extra.Unique = &Unique{Key: e.Extra.Unique.Key, Held: e.Extra.Unique.Held, Replaced: true}
	extra.DeliverAt, extra.Attributes, extra.ReplyTo, extra.CorrelationID, extra.Life = 0, nil, "", "", nil
	if x := content.Extra; x != nil {
		extra.DeliverAt, extra.Attributes, extra.ReplyTo, extra.CorrelationID, extra.Life = x.DeliverAt, x.Attributes, x.ReplyTo, x.CorrelationID, x.Life
	}
	due := now.At.Add(delay)
	if extra.DeliverAt > now.Wall {
		due = now.At.Add(time.Duration(extra.DeliverAt - now.Wall))
	} else {
		extra.DeliverAt = 0
	}
	s.rewait(now, e, due, Replaced, func(e *Entry) {
		s.bytes += grows
		e.Size = uint32(size)
		e.Body, e.Seal, e.Resident, e.ID = content.Body, content.Seal, content.Resident, content.ID
		e.Extra = &extra
	})
	if s.window != nil {
		s.backlog() // what the owner records next may depend on it
	}
	return nil
}

// checkHolders checks that every message that holds its key is found by it.
func (s *Shard) checkHolders() error {
	held := 0
	check := func(e *Entry) error {
		if !e.HoldsKey() {
			return nil
		}
		held++
		h := s.holders[e.Extra.Unique.Key]
		if h.seq != e.Seq || h.id != e.ID {
			return fmt.Errorf("engine: message %d holds a key, which finds message %d", e.Seq, h.seq)
		}
		if e.Waits() && s.window == nil && h.entry != e {
			return fmt.Errorf("engine: message %d is not where its key says", e.Seq)
		}
		return nil
	}
	for _, state := range []State{Ready, Delayed} {
		for e := range s.InState(state) {
			if err := check(e); err != nil {
				return err
			}
		}
	}
	for _, e := range s.inFlight.slots {
		if e != nil {
			if err := check(e); err != nil {
				return err
			}
		}
	}
	if held > len(s.holders) || held+int(s.arriving) < len(s.holders) {
		return fmt.Errorf("engine: %d messages hold keys, and %d arrive; %d keys are held", held, s.arriving, len(s.holders))
	}
	return nil
}
