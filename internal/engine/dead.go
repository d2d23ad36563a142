package engine

import "github.com/mailboxmq/mailbox/driver"

// deadLetters holds dead letters of a shard in the order of their deaths.
type deadLetters struct {
	byDeath order
	byID    map[string]*Entry
	bytes   int
}

// noDeadLetters is shared by all shards without dead letters, which most are. It
// stays empty: holdDead gives a shard its own deadLetters first.
var noDeadLetters = new(deadLetters)

// holdDead holds a dead letter in memory.
func (s *Shard) holdDead(e *Entry) {
	if s.dead == noDeadLetters {
		s.dead = &deadLetters{byID: make(map[string]*Entry)}
	}
	s.dead.add(e)
}

func (d *deadLetters) add(e *Entry) {
	d.byDeath.push(e)
	d.byID[e.ID] = e
	d.bytes += int(e.Size)
}

// takeDead removes a dead letter and returns a copy of it. e and the entry that is
// held in memory, if it is another one, become Gone. With a backlog e keeps its
// fields, because effects may still refer to it.
func (s *Shard) takeDead(e *Entry) *Entry {
	taken := *e
	if s.window == nil {
		*e = Entry{Place: e.Place}
	}
	e.State = Gone
	if held := s.dead.byID[taken.ID]; held != nil {
		held.State = Gone
		delete(s.dead.byID, taken.ID)
		s.dead.byDeath.lost()
		s.dead.bytes -= int(taken.Size)
	}
	return &taken
}

// deadFull reports whether there is no room for a message that dies for this reason.
// Retention by count, if it is tighter than MaxDead, makes room instead. If dead
// letters are forwarded, only those that had to stay count, and only while the
// target has no room.
func (s *Shard) deadFull(reason driver.Reason) bool {
	if most := s.config.RetainDead.Count; s.config.MaxDead == 0 || (most > 0 && most < s.config.MaxDead) {
		return false
	}
	kept := s.stats.Dead - int(s.unseen)
	if s.forwards(reason) {
		return kept >= s.config.MaxDead && !s.forwardRoom()
	}
	return kept+int(s.dying) >= s.config.MaxDead
}

// die makes a message that is staged to die a dead letter. The message is in no
// order, except perhaps the one by age.
func (s *Shard) die(e *Entry) {
	g := e.group
	e.group = nil
	dead := e
	if s.holdsAges() {
		moved := *e
		dead = &moved
		s.vanish(e)
	}
	s.addDeadLetter(dead)
	if g != nil { // after the effect, which the backlog must see first
		s.regroup(g)
	}
}

// addDeadLetter adds a message that is staged to die, and is in no order, to the
// dead letters.
func (s *Shard) addDeadLetter(dead *Entry) {
	dead.State = Dead
	if s.window == nil {
		dead.Born = dead.HoldUntil
	}
	s.ended(driver.EndingDied, dead)
	s.leave(dead)
	s.dying--
	s.stats.Dead++
	if s.forwardRoom != nil && dead.Is(Leaving) {
		s.unseen++
	}
	if s.window == nil || s.window.admitsDead(dead, s.dead) {
		s.holdDead(dead)
	}
	if s.recordEffects {
		s.effects = append(s.effects, Effect{Kind: Died, Entry: dead, Recorded: dead.Is(recorded)})
	}
	s.expireDeadByCount()
}

// oldestDead returns the dead letter that died first, or nil.
func (s *Shard) oldestDead() *Entry {
	if e := s.dead.byDeath.head(); e != nil || s.window == nil {
		return e
	}
	s.refillDead()
	return s.dead.byDeath.head()
}

// Deaths returns the Place of the latest dead letter. Later ones have higher places.
func (s *Shard) Deaths() uint64 { return s.deaths }

// FindDead returns the dead letter with this id, or nil.
func (s *Shard) FindDead(id string) *Entry {
	if e := s.justDied(id); e != nil {
		return e // its effect refers to this entry, so the owner sees what changes
	}
	if e := s.dead.byID[id]; e != nil || s.window == nil {
		return e
	}
	return s.findDeadInBacklog(id)
}

// justDied returns the dead letter with this id if Effects has not returned its
// death yet, or nil.
func (s *Shard) justDied(id string) *Entry {
	for i := len(s.effects) - 1; i >= 0 && s.unseen > 0; i-- {
		e := s.effects[i].Entry
		if s.effects[i].Kind == Died && e.State == Dead && e.ID == id {
			return e
		}
	}
	return nil
}

// Redrive makes a dead letter ready again; see StageRedrive.
func (s *Shard) Redrive(now Moment, dead *Entry) error {
	e, err := s.StageRedrive(now, dead)
	if err == nil {
		s.Publish(now, e) // what waited for the room that it leaves comes first
	}
	return err
}

// StageRedrive prepares to make a dead letter ready again, at the tail, with the same
// id, a new Seq and its whole time to live. It is removed from the dead letters at once. It may return
// ErrFull, ErrNotFound if the dead letter has just expired, ErrIntegrity if it is damaged, or
// ErrConflict if another message holds its unique key; see Holder.
func (s *Shard) StageRedrive(now Moment, dead *Entry) (*Entry, error) {
	if err := s.Room(now, int(dead.Size)); err != nil {
		return nil, err
	}
	if s.window != nil {
		s.backlog() // records a death that has just happened
		dead = s.FindDead(dead.ID)
	}
	if dead == nil || dead.State != Dead { // it expired in Room
		return nil, driver.ErrNotFound
	}
	if dead.Is(Damaged) {
		return nil, driver.ErrIntegrity
	}
	if u := dead.unique(); u != nil {
		if _, taken := s.holders[u.Key]; taken {
			return nil, driver.ErrConflict
		}
	}
	e := s.takeDead(dead)
	s.stats.Dead--
	x := e.extra()
	x.Redrives++
	x.Reason, x.ErrorType, x.DeadAt = "", "", 0
	e.Deliveries = 0
	e.Due = now.At
	s.startLife(now, e)
	s.arrive(now, e)
	return e, nil
}

// Discard removes a dead letter.
func (s *Shard) Discard(now Moment, dead *Entry) {
	s.discard(dead)
	s.Advance(now) // retention may have waited for room
}

// RemoveForwarded removes a dead letter that the owner has forwarded and recorded. It
// has no effect, and it does not advance time: the owner may hold effects that the
// backlog does not have yet, and calls Advance after the last of them.
func (s *Shard) RemoveForwarded(dead *Entry) {
	s.takeDead(dead)
	s.stats.Dead--
}

// KeepDead keeps a dead letter that was Leaving.
func (s *Shard) KeepDead(dead *Entry) { dead.set(Leaving, false) }

func (s *Shard) discard(dead *Entry) {
	removed := s.takeDead(dead)
	s.stats.Dead--
	s.effect(Discarded, removed)
}

// PurgeDead removes all dead letters and returns their number.
func (s *Shard) PurgeDead(now Moment) (removed int) {
	s.Advance(now)
	removed = s.stats.Dead
	s.stats.Dead = 0
	s.dead = noDeadLetters
	if s.window != nil {
		s.window.deadHorizon = allPlaces
	}
	s.Advance(now) // retention may have waited for room
	return removed
}
