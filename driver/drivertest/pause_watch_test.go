package drivertest

import (
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func TestCaseIsRepeatedWithLongerTicks(t *testing.T) {
	b := modelBackend(nil)
	b.Virtual, b.Tick = false, time.Second
	for what, spoil := range map[string]func(e *env){
		"a failure while the machine stands still": func(e *env) {
			e.pauses.most.Store(int64(e.tick))
			e.failf("too late")
		},
		"a machine that is too slow": func(e *env) { e.tooSlow("a lease was over") },
	} {
		t.Run(what, func(t *testing.T) {
			var ticks []time.Duration
			c := testCase{id: "VIS-1", run: func(e *env, _ driver.Queue) {
				if ticks = append(ticks, e.tick); len(ticks) < 3 {
					spoil(e)
				}
			}}
			c.check(t, b)
			if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}; !slices.Equal(ticks, want) {
				t.Errorf("ticks of %v, want %v", ticks, want)
			}
		})
	}
}
