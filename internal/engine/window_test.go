package engine

import (
	"fmt"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// shelf is the store behind a windowed shard: it keeps what effects tell it.
type shelf map[uint64]Stored // by Seq

func (sh shelf) apply(effects []Effect) {
	for _, effect := range effects {
		e := effect.Entry
		switch effect.Kind {
		case Sent, Leased, Returned:
			sh[e.Seq] = Stored{Entry: *e, Born: e.born}
		case Acked, Died, Discarded:
			delete(sh, e.Seq)
		}
	}
}

// ready returns the ready messages at or after a place, in order.
func (sh shelf) ready(from uint64) (found []Stored) {
	for _, stored := range sh {
		if stored.State == Ready && stored.Place >= from {
			found = append(found, stored)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Place < found[j].Place })
	return found
}

// feed gives the shard what it misses.
func (sh shelf) feed(s *Shard) {
	from, n := s.Missing()
	if n == 0 {
		return
	}
	found := sh.ready(from)
	end := len(found) <= n
	s.Load(found[:min(n, len(found))], end)
}

// TestWindowedShardBehavesLikeAWholeOne runs the same program on a shard that
// holds a few messages and on one that holds all.
func TestWindowedShardBehavesLikeAWholeOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := driver.Config{MaxDeliveries: rapid.SampledFrom([]int{0, 3}).Draw(t, "max deliveries")}
		whole, windowed := New(config, 1), New(config, 1)
		limit := rapid.IntRange(1, 6).Draw(t, "window")
		windowed.SetWindow(limit)
		windowed.RecordEffects(true)
		store := shelf{}
		now, sent := 0, 0
		var deliveries []Delivery
		step := func(on func(s *Shard) string) {
			a := on(whole)
			b := on(windowed)
			store.apply(windowed.Effects())
			if a != b {
				t.Fatalf("whole: %s\nwindowed: %s", a, b)
			}
			if err := windowed.Check(); err != nil {
				t.Fatal(err)
			}
			if held := windowed.ready.size; held > 3*limit {
				t.Fatalf("%d ready messages are held with a window of %d", held, limit)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				sent++
				delay := time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second
				step(func(s *Shard) string {
					s.Advance(at(now))
					return fmt.Sprint(s.Send(at(now), fmt.Sprint(sent), nil, nil, delay).Seq)
				})
			},
			"receive": func(t *rapid.T) {
				most := rapid.IntRange(1, 3).Draw(t, "most")
				visibility := time.Duration(rapid.IntRange(1, 3).Draw(t, "visibility")) * time.Second
				var got []Delivery
				step(func(s *Shard) (result string) {
					got = got[:0]
					for len(got) < most {
						if s == windowed {
							s.Advance(at(now))
							store.apply(s.Effects())
							store.feed(s)
						}
						entries, _ := s.Receive(at(now), most-len(got), 0, visibility, nil)
						if len(entries) == 0 {
							break
						}
						for _, e := range entries {
							got = append(got, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
							result += fmt.Sprintf("%s#%d ", e.ID, e.Deliveries)
						}
					}
					return result
				})
				deliveries = append(deliveries, got...)
			},
			"ack": func(t *rapid.T) {
				if len(deliveries) > 0 {
					d := rapid.SampledFrom(deliveries).Draw(t, "delivery")
					step(func(s *Shard) string { return fmt.Sprint(s.Ack(at(now), d)) })
				}
			},
			"nack": func(t *rapid.T) {
				if len(deliveries) > 0 {
					d := rapid.SampledFrom(deliveries).Draw(t, "delivery")
					delay := time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second
					step(func(s *Shard) string { return fmt.Sprint(s.Nack(at(now), d, delay, "")) })
				}
			},
			"time": func(t *rapid.T) {
				now += rapid.IntRange(0, 3).Draw(t, "seconds")
				step(func(s *Shard) string { return fmt.Sprint(s.Stats(at(now))) })
			},
		})
	})
}
