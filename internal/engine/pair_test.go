package engine

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// pair is two shards that must behave alike: one holds all messages, the other has a
// window of its backlog.
type pair struct {
	t               *rapid.T
	limits          Limits
	whole, windowed *Shard
	store           *memoryBacklog
	now, sent       int
	ahead           int   // how far the wall clock has stepped
	room            *room // may be nil
	others          int64 // what other shards have taken of the room
	deliveries      []Delivery
	staged          [][2]*Entry // of whole and windowed; stored, not published
}

// room is a Room for one shard.
type room struct{ taken int64 }

const roomBytes = 8 * entryBytes

func (r *room) Free() int64      { return roomBytes - r.taken }
func (r *room) Take(bytes int64) { r.taken += bytes }

func (p *pair) moment() Moment {
	m := at(p.now)
	m.Wall += int64(1000+p.ahead) * int64(time.Second) // a Point needs wall times above 0
	return m
}

// stepWall steps the wall clock. What is born at a due time is not exact then, so retention
// must be off.
func (p *pair) stepWall(t *rapid.T) {
	if !p.whole.tracksAge() {
		p.ahead += rapid.IntRange(-5, 5).Draw(t, "step")
		p.step(func(s *Shard) string { s.Advance(p.moment()); return "" })
	}
}

func (p *pair) step(on func(s *Shard) string) {
	a := on(p.whole) + p.act(p.whole)
	b := on(p.windowed) + p.act(p.windowed)
	if a != b {
		p.t.Fatalf("whole: %s\nwindowed: %s", a, b)
	}
	if whole, windowed := p.whole.Stats(p.moment()), p.windowed.Stats(p.moment()); whole != windowed {
		p.t.Fatalf("whole: %+v\nwindowed: %+v", whole, windowed)
	}
	if p.whole.stats != p.windowed.stats || p.whole.bytes != p.windowed.bytes {
		p.t.Fatalf("whole: %+v, %d bytes\nwindowed: %+v, %d bytes", p.whole.stats, p.whole.bytes, p.windowed.stats, p.windowed.bytes)
	}
	if err := p.windowed.Check(); err != nil {
		p.t.Fatal(err)
	}
	most := 3*p.limits.Messages + groupFill + priorities
	if p.room != nil {
		most += roomBytes / entryBytes
		if mine := p.windowed.window.taken; p.room.taken != mine+p.others {
			p.t.Fatalf("%d bytes of the room are taken, %d by this shard and %d by others", p.room.taken, mine, p.others)
		}
	}
	if held := p.windowed.window.heldReady; held > most {
		p.t.Fatalf("%d ready messages are held with a limit of %d", held, p.limits.Messages)
	}
	if held := max(p.windowed.window.delays.held, p.windowed.window.alarms.held); held > 3*p.limits.Messages {
		p.t.Fatalf("%d delayed messages are held with a limit of %d", held, p.limits.Messages)
	}
	if held := len(p.windowed.dead.byID); held > 3*p.limits.Messages+16 { // staged deaths are held when they are published
		p.t.Fatalf("%d dead letter are held with a limit of %d", held, p.limits.Messages)
	}
}

// act handles effects as an owner does: it passes them to the backlog, forwards every
// other dead letter that is Leaving, and returns which.
func (p *pair) act(s *Shard) (gone string) {
	for effects := s.Effects(); len(effects) > 0; effects = s.Effects() {
		for _, effect := range effects {
			leaving := effect.Kind == Died && effect.Entry.State == Dead && effect.Entry.Is(Leaving)
			if leaving && effect.Entry.Seq%2 == 0 {
				gone += " " + effect.Entry.ID
				s.RemoveForwarded(effect.Entry)
				if s == p.windowed {
					delete(p.store.live, effect.Entry.Seq)
					delete(p.store.dead, effect.Entry.Place)
				}
				continue
			}
			if leaving {
				s.KeepDead(effect.Entry)
			}
			if s == p.windowed {
				p.store.CatchUp([]Effect{effect})
			}
		}
		s.Advance(p.moment())
	}
	return gone
}

func (p *pair) send(t *rapid.T) {
	delay := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "delay")) * time.Second
	due := rapid.SampledFrom([]int{0, 0, 0, -1, 1, 4}).Draw(t, "due") // unless 0, instead of the delay
	ttl := rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(t, "time to live")
	group := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "group")
	size := rapid.IntRange(0, 2).Draw(t, "size")
	priority, key := anyPriority(t), anyKey(t)
	replace := rapid.Bool().Draw(t, "replace")
	var both [2]*Entry
	p.sent++
	p.step(func(s *Shard) string {
		if err := s.Room(p.moment(), size); err != nil && !replace {
			return err.Error()
		}
		extra := &Extra{Group: group, Unique: key}
		if ttl > 0 {
			extra.Life = &Life{TTL: time.Duration(ttl) * time.Second}
		}
		if due != 0 {
			extra.DeliverAt = p.moment().Wall + int64(due)*int64(time.Second)
		}
		if key != nil {
			id, held := s.Holder(p.moment(), key.Key)
			e, state := s.FindHolder(p.moment(), key.Key)
			switch {
			case held != (state != Gone) || (e != nil && e.ID != id):
				p.t.Fatalf("the key is held by %q: %v; found %+v in state %d", id, held, e, state)
			case replace && (state == Ready || state == Delayed):
				err := s.Replace(p.moment(), e, Content{ID: id, Body: make([]byte, size), Extra: extra}, delay)
				return fmt.Sprint("replaced ", id, err)
			case held:
				return "held by " + id
			}
		}
		if err := s.Room(p.moment(), size); err != nil {
			return err.Error()
		}
		p.note(s, s.StageSend(p.moment(), Content{ID: fmt.Sprint(p.sent), Body: make([]byte, size), Priority: priority, Extra: extra}, delay), &both)
		return "staged"
	})
	p.stage(both)
}

// forward sends a message that is published before those that were staged
// earlier.
func (p *pair) forward(t *rapid.T) {
	group, key := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "group"), anyKey(t)
	p.sent++
	p.step(func(s *Shard) string {
		if err := s.Room(p.moment(), 1); err != nil {
			return err.Error()
		}
		var both [2]*Entry
		e := s.StageSend(p.moment(), Content{ID: fmt.Sprint(p.sent), Body: []byte{1}, Extra: &Extra{Group: group, Unique: key}}, 0)
		p.note(s, e, &both)
		s.PublishNow(p.moment(), e)
		return "sent"
	})
}

// edit removes, reschedules or prioritizes a message.
func (p *pair) edit(t *rapid.T) {
	id := fmt.Sprint(rapid.IntRange(1, p.sent+1).Draw(t, "id"))
	remove := rapid.IntRange(0, 3).Draw(t, "remove") == 0
	prioritize, priority := rapid.Bool().Draw(t, "prioritize"), anyPriority(t)
	if config := p.whole.config; config.StrictGroups || config.FairGroups {
		prioritize = false
	}
	due := rapid.SampledFrom([]int{-1, 0, 1, 4}).Draw(t, "due")
	p.step(func(s *Shard) string {
		now := p.moment()
		e, state := s.Find(now, id)
		for next := uint64(1); s == p.windowed && e == nil && next > 0; { // ids of tests do not grow with Seq
			e, state, next = s.Search(now, id, next)
		}
		if state != Ready && state != Delayed {
			return fmt.Sprint(state)
		}
		switch {
		case remove:
			s.Remove(e)
		case prioritize:
			s.Prioritize(now, e, priority)
		default:
			s.Reschedule(now, e, now.Wall+int64(due)*int64(time.Second))
		}
		return fmt.Sprint(state, " changed")
	})
}

// move withdraws messages, and sends some of them back to the tail.
func (p *pair) move(t *rapid.T) {
	most := rapid.IntRange(1, 3).Draw(t, "most")
	page := rapid.IntRange(1, 3).Draw(t, "page")
	comeBack := rapid.Bool().Draw(t, "come back")
	p.step(func(s *Shard) (result string) {
		until, moved := s.Tail(), 0
		for last := uint64(0); last < until && moved < most; {
			var found []*Entry
			found, last = s.Movable(p.moment(), last, until, page, func(*Entry) bool { return true })
			for _, e := range found {
				if moved == most {
					break
				}
				if gone := s.Withdraw(p.moment(), MarkOf(e)); gone != nil {
					moved++
					result += gone.ID + " "
					p.handOver(s, gone, comeBack)
				}
			}
		}
		return result
	})
}

// handOver stores that a message was withdrawn, and perhaps sent back.
func (p *pair) handOver(s *Shard, gone *Entry, comeBack bool) {
	if s == p.windowed {
		delete(p.store.live, gone.Seq)
	}
	if comeBack {
		var both [2]*Entry
		e := s.StageArrival(p.moment(), gone, gone.Extra)
		p.note(s, e, &both)
		s.PublishNow(p.moment(), e)
	}
	s.UnblockGroup(gone)
}

func (p *pair) note(s *Shard, e *Entry, both *[2]*Entry) {
	if s == p.whole {
		both[0] = e
		return
	}
	both[1] = e
	s.backlog() // passes it the effects
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
		s.Advance(p.moment())
		dead := slices.Collect(s.InState(Dead))
		if len(dead) == 0 {
			return "none"
		}
		oldest := s.FindDead(dead[0].ID)
		if len(dead)%2 == 0 {
			oldest = s.FindDead(dead[len(dead)-1].ID)
		}
		id, death := oldest.ID, oldest.Place
		e, err := s.StageRedrive(p.moment(), oldest)
		if err != nil {
			return err.Error()
		}
		if s == p.windowed {
			s.backlog() // passes it the effects
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
		s.Advance(p.moment())
		dead := s.FindDead(id)
		if dead == nil {
			return "none"
		}
		s.Discard(p.moment(), dead)
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
			s.Publish(p.moment(), both[0])
		} else {
			s.Publish(p.moment(), both[1])
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
		most = 1 // a receive that stops early may take fewer than the other
	}
	visibility := time.Duration(rapid.IntRange(0, 3).Draw(t, "visibility")) * time.Second
	var got []Delivery
	p.step(func(s *Shard) (result string) {
		got = nil
		entries, blocked := s.Receive(p.moment(), most, 0, visibility, nil)
		for rounds := 0; len(entries) == 0 && s.Searching(); rounds++ {
			if rounds > 1000 {
				p.t.Fatal("Searching stays true")
			}
			entries, blocked = s.Receive(p.moment(), most, 0, visibility, nil)
		}
		for _, e := range entries {
			got = append(got, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
			result += fmt.Sprintf("%s#%d ", e.ID, e.Deliveries)
		}
		return fmt.Sprint(result, blocked)
	})
	p.deliveries = append(p.deliveries, got...)
}

// throttle throttles a group.
func (p *pair) throttle(t *rapid.T) {
	if !p.whole.config.StrictGroups && !p.whole.config.FairGroups {
		return
	}
	group := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "group")
	wait := time.Duration(rapid.IntRange(0, 5).Draw(t, "wait")) * time.Second
	p.step(func(s *Shard) string { s.Throttle(p.moment(), group, wait); return "" })
}

// look compares the messages in all states.
func (p *pair) look(*rapid.T) {
	p.step(func(s *Shard) (result string) {
		s.Advance(p.moment())
		for _, state := range []State{Ready, Delayed, InFlight, Dead} {
			result += fmt.Sprint(state, ": ")
			for e := range s.InState(state) {
				result += fmt.Sprintf("%s at %d with %d bytes, ", e.ID, e.Place, e.Size)
			}
		}
		return result
	})
}

// giveRoom takes the room back, as an owner does for other shards.
func (p *pair) giveRoom(*rapid.T) {
	p.windowed.GiveRoom()
	p.step(func(*Shard) string { return "" })
}

// othersTake changes how much of the room other shards have.
func (p *pair) othersTake(t *rapid.T) {
	if p.room != nil {
		p.room.taken -= p.others
		p.others = rapid.Int64Range(0, roomBytes).Draw(t, "taken")
		p.room.taken += p.others
	}
}

// restore replaces the windowed shard by one restored from its backlog.
func (p *pair) restore(_ *rapid.T, config driver.Config) {
	p.publishAll()
	p.ahead = max(p.ahead, int(int64(p.whole.wall)/int64(time.Second))-p.now-1000) // alarms that fired are not set again
	p.step(func(s *Shard) string { s.Advance(p.moment()); return "" })
	old := p.windowed
	totals := Totals{Dead: len(p.store.dead), Lives: true, Indexed: 1, NextSeq: old.nextSeq, Deaths: old.deaths}
	var out []*Entry
	for e := range p.store.Waiting(0) {
		totals.Messages++
		totals.Bytes += int(e.Size)
		switch {
		case e.State == InFlight:
			out = append(out, e)
		case e.Due > old.clockOf(e):
			totals.Delayed++
		}
	}
	old.LeaveRoom()
	p.windowed = New(config, old.nextNonce)
	p.windowed.SealReceipts(old.seal)
	p.windowed.SetBacklog(p.store, p.limits)
	p.windowed.RecordEffects(true)
	p.windowed.ForwardDead(p.whole.forwardRoom)
	p.windowed.Restore(p.moment(), totals, out)
	for e := range p.store.Waiting(0) {
		if e.HoldsKey() {
			p.windowed.RestoreKey(e.Extra.Unique.Key, e.Seq, e.ID)
		}
	}
	for _, g := range p.whole.groups.byName { // turns are not kept
		p.whole.groups.eligible.remove(g)
		g.after, g.served = 0, 0
		if state := g.limits; state != nil { // neither are buckets, but for throttles
			state.full = p.whole.clock
			if wait := time.Duration(state.until - p.whole.clock); wait > 0 {
				state.full = state.until.Add(state.slack)
				p.windowed.Throttle(p.moment(), g.name, wait)
			}
		}
		p.whole.regroup(g)
	}
	p.step(func(s *Shard) string { s.Configure(p.moment(), config); return "" })
}
