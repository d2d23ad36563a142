package engine

import "github.com/mailboxmq/mailbox/driver"

// deadLetters holds the dead letters of a shard, oldest death first.
type deadLetters struct {
	byDeath fifo
	byID    map[string]*Entry
	gone    int // entries in byDeath that are gone
}

func (d *deadLetters) add(e *Entry) {
	if d.byID == nil {
		d.byID = make(map[string]*Entry)
	}
	d.byDeath.push(e)
	d.byID[e.ID] = e
}

// oldest returns the letter that died first, or nil.
func (d *deadLetters) oldest() *Entry {
	for {
		e := d.byDeath.first()
		if e == nil || e.State != Gone {
			return e
		}
		d.byDeath.pop()
		d.gone--
	}
}

// take removes e and leaves a Gone entry behind. The copy it returns is the
// message.
func (d *deadLetters) take(e *Entry) *Entry {
	taken := *e
	*e = Entry{}
	delete(d.byID, taken.ID)
	d.gone++
	if d.gone > compactAbove && d.gone > len(d.byID) {
		var live fifo
		for e := range d.all {
			live.push(e)
		}
		d.byDeath, d.gone = live, 0
	}
	return &taken
}

func (d *deadLetters) all(yield func(*Entry) bool) {
	for e := range d.byDeath.all {
		if e.State != Gone && !yield(e) {
			return
		}
	}
}

// deadFull reports whether no message may die. Retention by count, where it is
// tighter, makes room by itself.
func (s *Shard) deadFull() bool {
	if most := s.config.RetainDead.Count; most > 0 && most < s.config.MaxDead {
		return false
	}
	return s.config.MaxDead > 0 && s.stats.Dead+s.dying >= s.config.MaxDead
}

// die makes a condemned message that is in no order, but perhaps the one by
// age, a dead letter.
func (s *Shard) die(now Moment, e *Entry) {
	s.leaveGroup(e)
	letter := e
	if s.tracksAge() {
		moved := *e
		letter = &moved
		s.vanish(e)
	}
	s.bury(now, letter)
}

// bury adds a condemned letter that no order holds.
func (s *Shard) bury(now Moment, letter *Entry) {
	letter.extra().DeadAt = now.Wall
	letter.State = Dead
	s.deaths++
	letter.Place = s.deaths
	letter.Born = now.At
	s.bytes -= int(letter.Size)
	s.dying--
	s.stats.Dead++
	s.dead.add(letter)
	s.effect(Died, letter)
	s.expireDeadByCount()
}

// DeadLetters yields the dead letters, oldest death first. The shard must not
// be changed while it runs.
func (s *Shard) DeadLetters(yield func(*Entry) bool) { s.dead.all(yield) }

// FindDead returns the dead letter with this id, or nil.
func (s *Shard) FindDead(id string) *Entry { return s.dead.byID[id] }

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
// ErrFull, or ErrNotFound if the letter has just expired.
func (s *Shard) StageRedrive(now Moment, letter *Entry) (*Entry, error) {
	if err := s.Room(now, int(letter.Size)); err != nil {
		return nil, err
	}
	if letter.State != Dead { // Room has let it expire
		return nil, driver.ErrNotFound
	}
	e := s.dead.take(letter)
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

func (s *Shard) discard(letter *Entry) {
	removed := s.dead.take(letter)
	s.stats.Dead--
	s.effect(Discarded, removed)
}

// PurgeDead removes all dead letters and returns how many.
func (s *Shard) PurgeDead(now Moment) (removed int) {
	s.Advance(now)
	removed = s.stats.Dead
	s.stats.Dead = 0
	s.dead = deadLetters{}
	s.Advance(now) // retention may have waited for the room
	return removed
}
