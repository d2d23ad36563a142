package drivertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/reply"
)

func TestCaseIsRepeatedWithLongerTicks(t *testing.T) {
	b := modelBackend(nil)
	b.Virtual, b.Tick = false, time.Second
	for what, spoil := range map[string]func(e *env){
		"a failure after slow operations": func(e *env) {
			e.began = e.began.Add(-e.tick())
			e.failf("too late")
		},
		"a machine that is too slow": func(e *env) { e.tooSlow("a lease was over") },
	} {
		t.Run(what, func(t *testing.T) {
			var ticks []time.Duration
			c := testCase{id: "VIS-1", run: func(e *env, _ driver.Queue) {
				if ticks = append(ticks, e.tick()); len(ticks) < maxAttempts {
					spoil(e)
				}
			}}
			c.check(t, b)
			if want := []time.Duration{time.Second, 4 * time.Second, 16 * time.Second}; !slices.Equal(ticks, want) {
				t.Errorf("ticks of %v, want %v", ticks, want)
			}
		})
	}
}

func TestOnlySlowTimedCasesAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			what string
			do   func(e *env)
			want bool
		}{
			{"slow operations", func(e *env) { time.Sleep(e.tick()) }, true},
			{"a sleep that lasts too long", func(e *env) { e.sleep(0); time.Sleep(e.tick()) }, true},
			{"quick operations", func(e *env) { time.Sleep(e.tick() / 5) }, false},
			{"planned sleep", func(e *env) { e.sleep(3 * e.tick()) }, false},
			{"a case that does not depend on time", func(*env) { time.Sleep(time.Hour) }, false},
			{"the last attempt", func(e *env) { e.mayRepeat = false; time.Sleep(e.tick()) }, false},
		} {
			e := newPlainEnv(t, Backend{}, "VIS-1")
			e.mayRepeat = true
			if test.do(e); e.mayBeSlow() != test.want {
				t.Errorf("a failure after %s is repeated: %v, want %v", test.what, !test.want, test.want)
			}
		}
	})
}

// TestSlowMachineFailsNoCase runs all cases as on the real clock, on correct backends whose operations
// take a while: a case that fails expects operations to be quick. The clock is that of a bubble.
func TestSlowMachineFailsNoCase(t *testing.T) {
	volume.InFull(t)
	for seed := range uint64(volume.Count(t, 1, 100)) {
		for _, d := range []slowness{
			{usual: 15 * time.Millisecond, stall: 15 * time.Millisecond, every: 1},
			{usual: 40 * time.Millisecond, stall: 150 * time.Millisecond, every: 20},
			{usual: time.Millisecond, stall: time.Second, every: 50},
		} {
			slow := func() *delay { return &delay{slowness: d, rand: rand.New(rand.NewPCG(seed, 0))} }
			t.Run(fmt.Sprintf("seed %d, up to %v and %v", seed, d.usual, d.stall), func(t *testing.T) {
				for _, c := range allCases() {
					t.Run(c.id+"/"+c.title, func(t *testing.T) { c.onRealClock(slowBackend(slow())).checkInBubbles(t) })
				}
				for _, c := range allSlotCases() {
					store := ReplyStore{Open: func(testing.TB) driver.ReplyStore { return slowStore{reply.NewMemory(nil), slow()} }}
					t.Run(c.id+"/"+c.title, func(t *testing.T) { c.onRealClock(store).checkInBubbles(t) })
				}
			})
		}
	}
}

// checkInBubbles proves a case, with a bubble for each attempt.
func (a attempts) checkInBubbles(t *testing.T) {
	again := time.Duration(0)
	for attempt := 1; attempt == 1 || again > 0; attempt++ {
		synctest.Test(t, func(t *testing.T) { again = a.try(t, again, attempt) })
	}
}
