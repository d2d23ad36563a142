package engine

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// at is a moment i seconds into a test.
func at(i int) Moment {
	return Moment{At: Instant(i) * Instant(time.Second), Wall: int64(i) * int64(time.Second)}
}

// anyConfig draws a configuration in which every limit is small enough to be
// reached.
func anyConfig(t *rapid.T) driver.Config {
	small := func(name string) int { return rapid.SampledFrom([]int{0, 0, 1, 3, 8}).Draw(t, name) }
	seconds := func(name string) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 5, 30}).Draw(t, name)) * time.Second
	}
	groups := rapid.SampledFrom([]string{"free", "strict", "fair"}).Draw(t, "groups")
	limits := ""
	if groups != "free" {
		limits = rapid.SampledFrom([]string{"", "in-flight=1", "rate=1", "rate=0.25,burst=2; a: in-flight=2,rate=0.5", "a: none; in-flight=1"}).Draw(t, "limits")
	}
	return driver.Config{
		GroupLimits:   limits,
		StrictGroups:  groups == "strict",
		FairGroups:    groups == "fair",
		MaxDeliveries: rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "max deliveries"),
		MaxMessages:   small("max messages"),
		MaxBytes:      small("max bytes"),
		MaxInFlight:   small("max in flight"),
		MaxDead:       small("max dead"),
		RetainReady:   driver.Retention{Age: seconds("ready age"), Count: small("ready count")},
		RetainDead:    driver.Retention{Age: seconds("dead age"), Count: small("dead count")},
		PriorityAging: rapid.SampledFrom([]time.Duration{0, driver.Off, time.Second, 5 * time.Second}).Draw(t, "priority aging"),
		DropExpired:   rapid.Bool().Draw(t, "drop expired"),
		MaxHold:       rapid.SampledFrom([]time.Duration{0, 2 * time.Second, 20 * time.Second}).Draw(t, "max hold"),
	}
}

// anyPriority draws a priority; most messages have none.
func anyPriority(t *rapid.T) uint8 {
	return rapid.SampledFrom([]uint8{0, 0, 0, 1, 2, 5, 9}).Draw(t, "priority")
}

// anyKey draws a unique key; most messages have none.
func anyKey(t *rapid.T) *Unique {
	if n := rapid.SampledFrom([]byte{0, 0, 1, 2}).Draw(t, "unique key"); n > 0 {
		return &Unique{Key: Digest{n}}
	}
	return nil
}

// anyMode draws how a delivery is given back.
func anyMode(t *rapid.T) driver.NackMode {
	return rapid.SampledFrom([]driver.NackMode{driver.NackFailed, driver.NackRelease, driver.NackPutBack}).Draw(t, "mode")
}

// randomly checks rounds of a hundred random programs each.
func randomly(t *testing.T, rounds int, check func(*rapid.T)) {
	t.Helper()
	for range volume.Count(t, rounds, 100*rounds) {
		if rapid.Check(t, check); t.Failed() {
			return
		}
	}
}

// TestStructureHoldsUnderRandomPrograms runs random operations and checks every
// invariant after each of them.
func TestStructureHoldsUnderRandomPrograms(t *testing.T) {
	volume.InFull(t)
	randomly(t, 50, func(t *rapid.T) {
		s := New(anyConfig(t), 1)
		s.RecordEffects(rapid.Bool().Draw(t, "effects"))
		now, sent := 0, 0
		var deliveries []Delivery
		var staged []*Entry
		stage := func(e *Entry, err error) {
			if err == nil {
				staged = append(staged, e)
			}
		}
		anyDelivery := func() Delivery {
			if len(deliveries) == 0 {
				return Delivery{Seq: 1, Nonce: 1, ID: "1"}
			}
			return rapid.SampledFrom(deliveries).Draw(t, "delivery")
		}
		seconds := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Second
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				body := make([]byte, rapid.IntRange(0, 3).Draw(t, "size"))
				if s.Room(at(now), len(body)) != nil {
					return
				}
				sent++
				extra := &Extra{Group: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "group")}
				if ttl := seconds("time to live", 8); ttl > 4*time.Second {
					extra.Life = &Life{TTL: ttl}
				}
				if extra.Unique = anyKey(t); extra.Unique != nil {
					if e, state := s.FindHolder(at(now), extra.Unique.Key); state != Gone {
						if state == Ready || state == Delayed {
							_ = s.Replace(at(now), e, Content{ID: e.ID, Body: body, Extra: extra}, seconds("delay", 4))
						}
						return
					}
				}
				s.Send(at(now), Content{ID: fmt.Sprint(sent), Body: body, Priority: anyPriority(t), Extra: extra}, seconds("delay", 4))
			},
			"receive": func(t *rapid.T) {
				most := rapid.IntRange(1, 4).Draw(t, "most")
				got, _ := s.Receive(at(now), most, rapid.IntRange(0, 4).Draw(t, "bytes"), seconds("visibility", 6), nil)
				for _, e := range got {
					deliveries = append(deliveries, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
				}
			},
			"stage a send": func(t *rapid.T) {
				if s.Room(at(now), 1) == nil {
					sent++
					stage(s.StageSend(at(now), Content{ID: fmt.Sprint(sent), Body: []byte{1}, Priority: anyPriority(t), Extra: &Extra{Group: "a", Unique: anyKey(t)}}, seconds("delay", 4)), nil)
				}
			},
			"prioritize": func(t *rapid.T) {
				id := fmt.Sprint(rapid.IntRange(1, sent+1).Draw(t, "id"))
				if e, state := s.Find(at(now), id); (state == Ready || state == Delayed) && !s.config.StrictGroups && !s.config.FairGroups {
					s.Prioritize(at(now), e, anyPriority(t))
				}
			},
			"stage an ack": func(*rapid.T) { stage(s.StageAck(at(now), anyDelivery())) },
			"stage a late ack": func(*rapid.T) {
				if e, err := s.StageLateAck(at(now), anyDelivery()); e != nil {
					stage(e, err)
				}
			},
			"stage a nack":        func(t *rapid.T) { stage(s.StageNack(at(now), anyDelivery(), seconds("delay", 4), "cause", anyMode(t))) },
			"stage a dead letter": func(*rapid.T) { stage(s.StageDeadLetter(at(now), anyDelivery(), driver.ReasonFatal, "", "")) },
			"publish": func(*rapid.T) {
				if len(staged) > 0 {
					s.Publish(at(now), staged[0])
					staged = staged[1:]
				}
			},
			"ack":         func(*rapid.T) { _ = s.Ack(at(now), anyDelivery()) },
			"nack":        func(t *rapid.T) { _ = s.Nack(at(now), anyDelivery(), seconds("delay", 4), "cause", anyMode(t)) },
			"extend":      func(*rapid.T) { _, _ = s.Extend(at(now), anyDelivery(), seconds("visibility", 6)) },
			"dead-letter": func(*rapid.T) { _ = s.DeadLetter(at(now), anyDelivery(), driver.ReasonFatal, "cause", "type") },
			"redrive": func(*rapid.T) {
				s.Advance(at(now))
				if dead := s.oldestDead(); dead != nil {
					_ = s.Redrive(at(now), dead)
				}
			},
			"discard": func(t *rapid.T) {
				s.Advance(at(now))
				var ids []string
				for e := range s.InState(Dead) {
					ids = append(ids, e.ID)
				}
				if len(ids) > 0 {
					s.Discard(at(now), s.FindDead(rapid.SampledFrom(ids).Draw(t, "id")))
				}
			},
			"throttle": func(t *rapid.T) {
				if s.config.StrictGroups || s.config.FairGroups {
					s.Throttle(at(now), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "group"), seconds("wait", 5))
				}
			},
			"time": func(t *rapid.T) { now += rapid.IntRange(0, 8).Draw(t, "seconds") },
			"purge": func(t *rapid.T) {
				if len(staged) == 0 && rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					s.Purge(at(now))
				}
			},
			"configure": func(t *rapid.T) { s.Configure(at(now), anyConfig(t)) },
			"": func(t *rapid.T) {
				s.Effects()
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
				if next, ok := s.NextDeadline(); ok && next < s.clock && !s.deadFull(driver.ReasonExpired) {
					t.Fatalf("next deadline %d is before the clock %d", next, s.clock)
				}
			},
		})
	})
}
