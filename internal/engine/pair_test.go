package engine

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// pair is two shards that must not differ.
type pair struct {
	t              *rapid.T
	limits         Limits
	whole, shelved *Shard
	store          *shelf
	now, sent      int
	deliveries     []Delivery
	staged         [][2]*Entry // of whole and shelved, on the shelf, not published
}

func (p *pair) step(on func(s *Shard) string) {
	a := on(p.whole) + p.act(p.whole)
	b := on(p.shelved) + p.act(p.shelved)
	if a != b {
		p.t.Fatalf("whole: %s\nshelved: %s", a, b)
	}
	if p.whole.stats != p.shelved.stats || p.whole.bytes != p.shelved.bytes {
		p.t.Fatalf("whole: %+v, %d bytes\nshelved: %+v, %d bytes", p.whole.stats, p.whole.bytes, p.shelved.stats, p.shelved.bytes)
	}
	if err := p.shelved.Check(); err != nil {
		p.t.Fatal(err)
	}
	most := 3*p.limits.Messages + groupFill
	if held := p.shelved.window.heldReady; held > most {
		p.t.Fatalf("%d ready messages are held with a limit of %d", held, p.limits.Messages)
	}
	if held := p.shelved.window.heldDelayed; held > 3*p.limits.Messages {
		p.t.Fatalf("%d delayed messages are held with a limit of %d", held, p.limits.Messages)
	}
	if held := len(p.shelved.dead.byID); held > 3*p.limits.Messages+16 { // staged deaths come late
		p.t.Fatalf("%d dead letters are held with a limit of %d", held, p.limits.Messages)
	}
}

// act does what an owner does about effects: it tells the shelf, sends every
// other letter that is leaving elsewhere, and says which.
func (p *pair) act(s *Shard) (gone string) {
	for effects := s.Effects(); len(effects) > 0; effects = s.Effects() {
		for _, effect := range effects {
			leaving := effect.Kind == Died && effect.Entry.State == Dead && effect.Entry.Is(Leaving)
			if leaving && effect.Entry.Seq%2 == 0 {
				gone += " " + effect.Entry.ID
				s.GiveAway(effect.Entry)
				if s == p.shelved {
					delete(p.store.live, effect.Entry.Seq)
					delete(p.store.dead, effect.Entry.Place)
				}
				continue
			}
			if leaving {
				s.KeepDead(effect.Entry)
			}
			if s == p.shelved {
				p.store.CatchUp([]Effect{effect})
			}
		}
		s.Advance(at(p.now))
	}
	return gone
}

func (p *pair) send(t *rapid.T) {
	delay := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "delay")) * time.Second
	group := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "group")
	size := rapid.IntRange(0, 2).Draw(t, "size")
	var both [2]*Entry
	p.sent++
	p.step(func(s *Shard) string {
		if err := s.Room(at(p.now), size); err != nil {
			return err.Error()
		}
		p.note(s, s.StageSend(at(p.now), fmt.Sprint(p.sent), make([]byte, size), &Extra{Group: group}, delay), &both)
		return "staged"
	})
	p.stage(both)
}

// forward sends a message that is published before those that were staged
// earlier.
func (p *pair) forward(t *rapid.T) {
	group := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "group")
	p.sent++
	p.step(func(s *Shard) string {
		if err := s.Room(at(p.now), 1); err != nil {
			return err.Error()
		}
		var both [2]*Entry
		e := s.StageSend(at(p.now), fmt.Sprint(p.sent), []byte{1}, &Extra{Group: group}, 0)
		p.note(s, e, &both)
		s.Fulfil(at(p.now), e)
		return "sent"
	})
}

// move takes messages away, and lets some of them come back at the tail.
func (p *pair) move(t *rapid.T) {
	most := rapid.IntRange(1, 3).Draw(t, "most")
	page := rapid.IntRange(1, 3).Draw(t, "page")
	comeBack := rapid.Bool().Draw(t, "come back")
	p.step(func(s *Shard) (result string) {
		until, moved := s.Tail(), 0
		for last := uint64(0); last < until && moved < most; {
			var found []*Entry
			found, last = s.Movable(at(p.now), last, until, page, func(*Entry) bool { return true })
			for _, e := range found {
				if moved == most {
					break
				}
				if gone := s.Withdraw(at(p.now), MarkOf(e)); gone != nil {
					moved++
					result += gone.ID + " "
					p.handOver(s, gone, comeBack)
				}
			}
		}
		return result
	})
}

// handOver writes down that a message has gone, and perhaps come back.
func (p *pair) handOver(s *Shard, gone *Entry, comeBack bool) {
	if s == p.shelved {
		delete(p.store.live, gone.Seq)
	}
	if comeBack {
		var both [2]*Entry
		e := s.StageArrival(at(p.now), gone, gone.Extra)
		p.note(s, e, &both)
		s.Fulfil(at(p.now), e)
	}
	s.LetGroupGo(gone)
}

func (p *pair) note(s *Shard, e *Entry, both *[2]*Entry) {
	if s == p.whole {
		both[0] = e
		return
	}
	both[1] = e
	s.shelf() // tells it
	p.store.stage(e)
}

func (p *pair) stage(both [2]*Entry) {
	if both[0] != nil {
		p.staged = append(p.staged, both)
	}
}

func (p *pair) settle(stage func(s *Shard, d Delivery) (*Entry, error)) {
	if len(p.deliveries) == 0 {
		return
	}
	d := rapid.SampledFrom(p.deliveries).Draw(p.t, "delivery")
	var both [2]*Entry
	p.step(func(s *Shard) string {
		e, err := stage(s, d)
		if err != nil {
			return err.Error()
		}
		if e == nil {
			return "removed"
		}
		p.note(s, e, &both)
		return "staged"
	})
	p.stage(both)
}

func (p *pair) redrive(*rapid.T) {
	var both [2]*Entry
	p.step(func(s *Shard) string {
		s.Advance(at(p.now))
		letters := slices.Collect(s.InState(Dead))
		if len(letters) == 0 {
			return "none"
		}
		oldest := s.FindDead(letters[0].ID)
		if len(letters)%2 == 0 {
			oldest = s.FindDead(letters[len(letters)-1].ID)
		}
		id, death := oldest.ID, oldest.Place
		e, err := s.StageRedrive(at(p.now), oldest)
		if err != nil {
			return err.Error()
		}
		if s == p.shelved {
			s.shelf() // tells it
			delete(p.store.dead, death)
		}
		p.note(s, e, &both)
		return id
	})
	p.stage(both)
}

func (p *pair) discard(t *rapid.T) {
	id := fmt.Sprint(rapid.IntRange(1, p.sent+1).Draw(t, "id"))
	p.step(func(s *Shard) string {
		s.Advance(at(p.now))
		letter := s.FindDead(id)
		if letter == nil {
			return "none"
		}
		s.Discard(at(p.now), letter)
		return "discarded"
	})
}

func (p *pair) publish() {
	if len(p.staged) == 0 {
		return
	}
	both := p.staged[0]
	p.staged = p.staged[1:]
	p.step(func(s *Shard) string {
		if s == p.whole {
			s.Publish(at(p.now), both[0])
		} else {
			s.Publish(at(p.now), both[1])
		}
		return ""
	})
}

func (p *pair) publishAll() {
	for len(p.staged) > 0 {
		p.publish()
	}
}

func (p *pair) receive(t *rapid.T) {
	most := rapid.IntRange(1, 4).Draw(t, "most")
	if p.limits.Look < 1000 {
		most = 1 // one that stops early may take less than the other
	}
	visibility := time.Duration(rapid.IntRange(0, 3).Draw(t, "visibility")) * time.Second
	var got []Delivery
	p.step(func(s *Shard) (result string) {
		got = nil
		entries, blocked := s.Receive(at(p.now), most, 0, visibility, nil)
		for rounds := 0; len(entries) == 0 && s.Searching(); rounds++ {
			if rounds > 1000 {
				p.t.Fatal("it goes on searching")
			}
			entries, blocked = s.Receive(at(p.now), most, 0, visibility, nil)
		}
		for _, e := range entries {
			got = append(got, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
			result += fmt.Sprintf("%s#%d ", e.ID, e.Deliveries)
		}
		return fmt.Sprint(result, blocked)
	})
	p.deliveries = append(p.deliveries, got...)
}

// look compares everything there is.
func (p *pair) look(*rapid.T) {
	p.step(func(s *Shard) (result string) {
		s.Advance(at(p.now))
		for _, state := range []State{Ready, Delayed, InFlight, Dead} {
			result += fmt.Sprint(state, ": ")
			for e := range s.InState(state) {
				result += fmt.Sprintf("%s at %d, ", e.ID, e.Place)
			}
		}
		return result
	})
}

// restore forgets the shelved shard and puts it back from what is on its shelf.
func (p *pair) restore(_ *rapid.T, config driver.Config) {
	p.publishAll()
	p.step(func(s *Shard) string { s.Advance(at(p.now)); return "" })
	old := p.shelved
	totals := Totals{Dead: len(p.store.dead), NextSeq: old.nextSeq, Deaths: old.deaths}
	var out []*Entry
	for e := range p.store.Waiting(0) {
		totals.Messages++
		totals.Bytes += int(e.Size)
		switch {
		case e.State == InFlight:
			out = append(out, e)
		case e.Due > at(p.now).At:
			totals.Delayed++
		}
	}
	p.shelved = New(config, old.nextNonce)
	p.shelved.SealReceipts(old.seal)
	p.shelved.SetShelf(p.store, p.limits)
	p.shelved.RecordEffects(true)
	p.shelved.ForwardDead(p.whole.elsewhere)
	p.shelved.Restore(at(p.now).At, totals, out)
	for _, g := range p.whole.groups.byName { // turns are not kept
		p.whole.groups.remove(g)
		g.after, g.served = 0, 0
		p.whole.settleGroup(g)
	}
	p.step(func(s *Shard) string { s.Configure(at(p.now), config); return "" })
}
