package engine

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWallClockDecidesNothing runs the same program twice, once with a wall clock that
// jumps back and forth by minutes. Delays, leases, dedup and retention must not
// change.
func TestWallClockDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := anyConfig(t)
		steady, jumpy := New(config, 1), New(config, 1)
		now, sent := 0, 0
		var deliveries []Delivery
		both := func(do func(s *Shard, now Moment) string) {
			moment := at(now)
			steadily := do(steady, moment)
			moment.Wall += int64(rapid.IntRange(-120, 120).Draw(t, "jump")) * int64(time.Second)
			if jumpily := do(jumpy, moment); jumpily != steadily {
				t.Fatalf("steady: %s\njumpy: %s", steadily, jumpily)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				sent++
				delay := time.Duration(rapid.IntRange(0, 4).Draw(t, "delay")) * time.Second
				both(func(s *Shard, now Moment) string {
					if err := s.Room(now, 1); err != nil {
						return err.Error()
					}
					s.Send(now, Content{ID: fmt.Sprint(sent), Body: []byte{1}}, delay)
					return "sent"
				})
			},
			"receive": func(t *rapid.T) {
				visibility := time.Duration(rapid.IntRange(0, 6).Draw(t, "visibility")) * time.Second
				var got []Delivery
				both(func(s *Shard, now Moment) (result string) {
					entries, blocked := s.Receive(now, 2, 0, visibility, nil)
					got = nil
					for _, e := range entries {
						got = append(got, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
						result += fmt.Sprintf("%s#%d ", e.ID, e.Deliveries)
					}
					return fmt.Sprint(result, blocked)
				})
				deliveries = append(deliveries, got...)
			},
			"nack": func(t *rapid.T) {
				if len(deliveries) > 0 {
					d, mode := rapid.SampledFrom(deliveries).Draw(t, "delivery"), anyMode(t)
					both(func(s *Shard, now Moment) string { return fmt.Sprint(s.Nack(now, d, time.Second, "", mode)) })
				}
			},
			"time": func(t *rapid.T) {
				now += rapid.IntRange(0, 8).Draw(t, "seconds")
				both(func(s *Shard, now Moment) string { return fmt.Sprint(s.Stats(now)) })
			},
		})
	})
}
