package engine

import (
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// Effect is a change of an entry that an owner may have to act on.
type Effect struct {
	Entry *Entry
	Was   *Entry // of Rescheduled, Prioritized and Replaced, with a backlog: the message before
	Kind  EffectKind
	// Recorded: the backlog has it already.
	Recorded bool
}

// EffectKind says what happened.
type EffectKind uint8

// The kinds of effects.
const (
	// Sent: a new message, ready or delayed.
	Sent EffectKind = iota + 1
	// Leased: handed out, or its lease extended.
	Leased
	// Returned: waiting again, ready or delayed, after a lease.
	Returned
	// Acked: gone because it was acked.
	Acked
	// Died: now a dead letter.
	Died
	// Discarded: a dead letter that is gone, by request or by retention.
	Discarded
	// Withdrawn: removed without an ack in time: dropped by retention, acked late, or
	// removed while it waited.
	Withdrawn
	// Rescheduled: its due time was changed while it waited.
	Rescheduled
	// Prioritized: its priority was changed while it waited.
	Prioritized
	// Replaced: its content and its due time were changed while it waited.
	Replaced
)

// RecordEffects turns the recording of effects for Effects on or off.
func (s *Shard) RecordEffects(on bool) { s.recordEffects = on }

// Effects returns the effects since its last call. Their entries are valid until
// the next call of any other method.
func (s *Shard) Effects() []Effect {
	effects := s.effects
	if len(effects) < int(s.shown) { // do not keep the entries of the last call alive
		clear(effects[len(effects):s.shown])
	}
	s.effects, s.shown, s.caughtUp, s.unseen = s.effects[:0], int32(len(effects)), 0, 0
	if len(effects) == 0 && cap(effects) > maxSpare {
		s.effects = nil
	}
	return effects
}

func (s *Shard) effect(kind EffectKind, e *Entry) {
	cameBack := kind == Returned || kind == Withdrawn
	if s.recordEffects {
		effect := Effect{Kind: kind, Entry: e, Recorded: cameBack && e.Is(recorded)}
		if (kind == Rescheduled || kind == Prioritized || kind == Replaced) && s.window != nil {
			effect.Was, s.window.was = s.window.was, nil
		}
		s.effects = append(s.effects, effect)
	}
	if cameBack {
		e.set(recorded, false)
	}
}

// maxEndings is how many endings between two calls of Endings are recorded one by
// one; more of them are counted by kind and reason.
const maxEndings = 64

// RecordEndings turns the recording of endings for Endings on or off.
func (s *Shard) RecordEndings(on bool) { s.recordEndings = on }

// Endings returns the messages that ended since its last call. The slice belongs to
// the caller; Queue is not set.
func (s *Shard) Endings() []driver.Ending {
	if s.endings == nil {
		return nil
	}
	endings := *s.endings
	s.endings = nil
	return endings
}

// ended records that a message ended.
func (s *Shard) ended(kind driver.EndingKind, e *Entry) {
	if !s.recordEndings {
		return
	}
	ending := driver.Ending{Kind: kind, Count: 1, Reason: driver.ReasonExpired}
	if e.Extra != nil && e.Extra.Reason != "" {
		ending.Reason = e.Extra.Reason
	}
	if s.endings == nil {
		s.endings = new([]driver.Ending)
	}
	endings := *s.endings
	if len(endings) < maxEndings {
		ending.ID = strings.Clone(e.ID) // an id may share its memory with a body
		ending.Deliveries = int(e.Deliveries)
		if e.Extra != nil {
			ending.LastError = e.Extra.LastError
		}
		*s.endings = append(endings, ending)
		return
	}
	for i := maxEndings; i < len(endings); i++ {
		if more := &endings[i]; more.Kind == kind && more.Reason == ending.Reason {
			more.Count++
			return
		}
	}
	*s.endings = append(endings, ending)
}
