package engine

import "github.com/mailboxmq/mailbox/driver"

// deadLetters holds the dead letters of a shard, oldest death first.
type deadLetters struct {
	byDeath order
	byID    map[string]*Entry
	bytes   int
}

// noDead is what shards have that hold no dead letters, which most never do. It
// stays empty: what is added to it is added to one that is made for the shard.
var noDead = new(deadLetters)

// holdDead adds a dead letter to those that are held.
func (s *Shard) holdDead(e *Entry) {
	if s.dead == noDead {
		s.dead = &deadLetters{byID: make(map[string]*Entry)}
	}
	s.dead.add(e)
}

func (d *deadLetters) add(e *Entry) {
	d.byDeath.push(e)
	d.byID[e.ID] = e
	d.bytes += int(e.Size)
}

// takeDead removes e, and the entry that is held of the same letter if that is
// another, and leaves Gone entries behind. The copy it returns is the message.
// With a shelf, effects may still need what the entry says.
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

// deadFull reports whether no message may die of this. Retention by count, where it is
// tighter, makes room by itself. Of letters that go elsewhere only those count
// that had to stay, and they do not matter while there is room elsewhere.
func (s *Shard) deadFull(reason driver.Reason) bool {
	if most := s.config.RetainDead.Count; s.config.MaxDead == 0 || (most > 0 && most < s.config.MaxDead) {
		return false
	}
	kept := s.stats.Dead - s.unseen
	if s.forwards(reason) {
		return kept >= s.config.MaxDead && !s.elsewhere()
	}
	return kept+s.dying >= s.config.MaxDead
}

// die makes a condemned message that is in no order, but perhaps the one by
// age, a dead letter.
func (s *Shard) die(e *Entry) {
	g := e.group
	e.group = nil
	letter := e
	if s.holdsAges() {
		moved := *e
		letter = &moved
		s.vanish(e)
	}
	s.bury(letter)
	if g != nil { // a shelf must know of the death before
		s.settleGroup(g)
	}
}

// bury adds a condemned letter that no order holds.
func (s *Shard) bury(letter *Entry) {
	letter.State = Dead
	if s.holdsAges() {
		letter.Born = letter.HoldUntil
	}
	s.ended(driver.EndingDied, letter)
	s.leave(letter)
	s.dying--
	s.stats.Dead++
	if s.elsewhere != nil && letter.Is(Leaving) {
		s.unseen++
	}
	if s.window == nil || s.window.admitsDead(letter, s.dead) {
		s.holdDead(letter)
	}
	if s.recordEffects {
		s.effects = append(s.effects, Effect{Kind: Died, Entry: letter, Told: letter.Is(told)})
	}
	s.expireDeadByCount()
}

// oldestDead returns the dead letter that died first, or nil.
func (s *Shard) oldestDead() *Entry {
	if e := s.dead.byDeath.head(); e != nil || s.window == nil {
		return e
	}
	s.fillDead()
	return s.dead.byDeath.head()
}

// Deaths returns the Place of the latest dead letter; later ones have a higher.
func (s *Shard) Deaths() uint64 { return s.deaths }

// FindDead returns the dead letter with this id, or nil.
func (s *Shard) FindDead(id string) *Entry {
	if e := s.justDied(id); e != nil {
		return e // what is done to it, the owner sees when it hears of its death
	}
	if e := s.dead.byID[id]; e != nil || s.window == nil {
		return e
	}
	return s.findShelvedDead(id)
}

// justDied returns the dead letter with this id if the owner has yet to be told
// that it died, or nil.
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
func (s *Shard) Redrive(now Moment, letter *Entry) error {
	e, err := s.StageRedrive(now, letter)
	if err == nil {
		s.Fulfil(now, e)
		s.Advance(now) // retention may have waited for the room
	}
	return err
}

// StageRedrive prepares to make a dead letter ready again, at the tail, under
// the same id and a new Seq. It is a dead letter no more. It may return
// ErrFull, ErrNotFound if the letter has just expired, or ErrIntegrity if it is
// damaged.
func (s *Shard) StageRedrive(now Moment, letter *Entry) (*Entry, error) {
	if err := s.Room(now, int(letter.Size)); err != nil {
		return nil, err
	}
	if s.window != nil {
		s.shelf() // it may have died just now
		letter = s.FindDead(letter.ID)
	}
	if letter == nil || letter.State != Dead { // Room has let it expire
		return nil, driver.ErrNotFound
	}
	if letter.Is(Damaged) {
		return nil, driver.ErrIntegrity
	}
	e := s.takeDead(letter)
	s.stats.Dead--
	x := e.extra()
	x.Redrives++
	x.Reason, x.ErrorType, x.DeadAt = "", "", 0
	e.Deliveries = 0
	e.Due = now.At
	s.arrive(now, e)
	return e, nil
}

// Discard removes a dead letter for ever.
func (s *Shard) Discard(now Moment, letter *Entry) {
	s.discard(letter)
	s.Advance(now) // retention may have waited for the room
}

// GiveAway is Discard without an effect, for an owner that has written down
// itself where the letter went. It does not advance: the owner may hold effects
// that the shelf was not told of. It advances when it has told them all.
func (s *Shard) GiveAway(letter *Entry) {
	s.takeDead(letter)
	s.stats.Dead--
}

// KeepDead says that a dead letter that was Leaving stays.
func (s *Shard) KeepDead(letter *Entry) { letter.set(Leaving, false) }

func (s *Shard) discard(letter *Entry) {
	removed := s.takeDead(letter)
	s.stats.Dead--
	s.effect(Discarded, removed)
}

// PurgeDead removes all dead letters and returns how many.
func (s *Shard) PurgeDead(now Moment) (removed int) {
	s.Advance(now)
	removed = s.stats.Dead
	s.stats.Dead = 0
	s.dead = noDead
	if s.window != nil {
		s.window.deadHorizon = allPlaces
	}
	s.Advance(now) // retention may have waited for the room
	return removed
}
