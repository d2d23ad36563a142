package engine

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// shelf is the plainest Shelf: it keeps copies of what it is told.
type shelf map[uint64]Entry // by Seq

// put writes down a staged entry, or one that was leased or came back.
func (sh shelf) put(e *Entry) {
	if e.Fate == Leaves || e.Fate == Dies {
		delete(sh, e.Seq)
		return
	}
	copied := *e
	copied.group, copied.placed = nil, false
	sh[e.Seq] = copied
}

func (sh shelf) apply(effects []Effect) {
	for _, effect := range effects {
		e := effect.Entry
		switch effect.Kind {
		case Leased:
			sh.put(e)
		case Died:
			delete(sh, e.Seq)
		case Sent, Returned, Acked, Discarded: // known from staging, or from the time
		}
	}
}

func (sh shelf) sorted(keep func(*Entry) bool, compare func(a, b *Entry) int) iter.Seq[*Entry] {
	var found []*Entry
	for _, e := range sh {
		if keep(&e) {
			found = append(found, &e)
		}
	}
	slices.SortFunc(found, compare)
	return slices.Values(found)
}

func (sh shelf) Waiting(from uint64) iter.Seq[*Entry] {
	return sh.sorted(func(e *Entry) bool { return e.Place >= from },
		func(a, b *Entry) int { return int(a.Place) - int(b.Place) })
}

func (sh shelf) Delayed(from DuePoint) iter.Seq[*Entry] {
	return sh.sorted(func(e *Entry) bool { return e.Nonce == 0 && !e.duePoint().before(from) },
		func(a, b *Entry) int {
			if a.duePoint().before(b.duePoint()) {
				return -1
			}
			return 1
		})
}

// TestShelvedShardBehavesLikeAWholeOne runs the same program on a shard that
// holds a few messages and on one that holds all, with staging and publishing
// apart.
func TestShelvedShardBehavesLikeAWholeOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := driver.Config{
			MaxDeliveries: rapid.SampledFrom([]int{0, 3}).Draw(t, "max deliveries"),
			MaxInFlight:   rapid.SampledFrom([]int{0, 4}).Draw(t, "max in flight"),
		}
		whole, shelved := New(config, 1), New(config, 1)
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		store := shelf{}
		shelved.SetShelf(store, limit)
		shelved.RecordEffects(true)
		p := &pair{t: t, whole: whole, shelved: shelved, store: store, limit: limit}
		t.Repeat(map[string]func(*rapid.T){
			"send":    p.send,
			"receive": p.receive,
			"ack": func(t *rapid.T) {
				p.settle(func(s *Shard, d Delivery) (*Entry, error) { return s.StageAck(at(p.now), d) })
			},
			"nack": func(t *rapid.T) {
				delay := time.Duration(rapid.IntRange(0, 4).Draw(t, "delay")) * time.Second
				p.settle(func(s *Shard, d Delivery) (*Entry, error) { return s.StageNack(at(p.now), d, delay, "") })
			},
			"extend": func(t *rapid.T) {
				visibility := time.Duration(rapid.IntRange(0, 4).Draw(t, "visibility")) * time.Second
				if len(p.deliveries) > 0 {
					d := rapid.SampledFrom(p.deliveries).Draw(t, "delivery")
					p.step(func(s *Shard) string { return fmt.Sprint(s.Extend(at(p.now), d, visibility)) })
				}
			},
			"publish": func(*rapid.T) { p.publish() },
			"time": func(t *rapid.T) {
				p.now += rapid.IntRange(0, 3).Draw(t, "seconds")
				p.step(func(s *Shard) string { return fmt.Sprint(s.Stats(at(p.now))) })
			},
			"purge": func(t *rapid.T) {
				for len(p.staged) > 0 {
					p.publish()
				}
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					p.step(func(s *Shard) string { return fmt.Sprint(s.Purge(at(p.now))) })
					clear(p.store)
				}
			},
		})
	})
}

// pair is two shards that must not differ.
type pair struct {
	t              *rapid.T
	whole, shelved *Shard
	store          shelf
	limit          int
	now, sent      int
	deliveries     []Delivery
	staged         [][2]*Entry // of whole and shelved, on the shelf, not published
}

func (p *pair) step(on func(s *Shard) string) {
	a := on(p.whole)
	b := on(p.shelved)
	p.store.apply(p.shelved.Effects())
	if a != b {
		p.t.Fatalf("whole: %s\nshelved: %s", a, b)
	}
	if p.whole.stats != p.shelved.stats {
		p.t.Fatalf("whole: %+v\nshelved: %+v", p.whole.stats, p.shelved.stats)
	}
	if err := p.shelved.Check(); err != nil {
		p.t.Fatal(err)
	}
	if held := p.shelved.ready.size; held > 3*p.limit {
		p.t.Fatalf("%d ready messages are held with a limit of %d", held, p.limit)
	}
	if held := p.shelved.window.heldDelayed; held > 3*p.limit {
		p.t.Fatalf("%d delayed messages are held with a limit of %d", held, p.limit)
	}
}

func (p *pair) send(t *rapid.T) {
	p.sent++
	delay := time.Duration(rapid.IntRange(0, 4).Draw(t, "delay")) * time.Second
	var both [2]*Entry
	p.step(func(s *Shard) string {
		s.Advance(at(p.now))
		e := s.StageSend(at(p.now), fmt.Sprint(p.sent), nil, nil, delay)
		p.note(s, e, &both)
		return fmt.Sprint(e.Seq)
	})
	p.staged = append(p.staged, both)
}

func (p *pair) note(s *Shard, e *Entry, both *[2]*Entry) {
	if s == p.whole {
		both[0] = e
		return
	}
	both[1] = e
	p.store.put(e)
}

func (p *pair) settle(stage func(s *Shard, d Delivery) (*Entry, error)) {
	if len(p.deliveries) == 0 {
		return
	}
	d := rapid.SampledFrom(p.deliveries).Draw(p.t, "delivery")
	var both [2]*Entry
	failed := false
	p.step(func(s *Shard) string {
		e, err := stage(s, d)
		if err != nil {
			failed = true
			return err.Error()
		}
		e.Nonce = 0 // what the shelf knows a delayed message by
		p.note(s, e, &both)
		return "staged"
	})
	if !failed {
		p.staged = append(p.staged, both)
	}
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

func (p *pair) receive(t *rapid.T) {
	most := rapid.IntRange(1, 4).Draw(t, "most")
	visibility := time.Duration(rapid.IntRange(0, 3).Draw(t, "visibility")) * time.Second
	var got []Delivery
	p.step(func(s *Shard) (result string) {
		got = nil
		entries, blocked := s.Receive(at(p.now), most, 0, visibility, nil)
		for _, e := range entries {
			got = append(got, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
			result += fmt.Sprintf("%s#%d ", e.ID, e.Deliveries)
		}
		return fmt.Sprint(result, blocked)
	})
	p.deliveries = append(p.deliveries, got...)
}
