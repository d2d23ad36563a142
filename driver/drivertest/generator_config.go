package drivertest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// coins reports whether any of n coins shows heads.
func coins(t *rapid.T, n int) bool {
	for range n {
		if rapid.Bool().Draw(t, "coin") {
			return true
		}
	}
	return false
}

// rarely is true once in 2ⁿ times.
func rarely(t *rapid.T, n int) bool {
	for range n {
		if !rapid.Bool().Draw(t, "coin") {
			return false
		}
	}
	return true
}

func pick[E any](t *rapid.T, from ...E) E { return rapid.SampledFrom(from).Draw(t, "pick") }

func upTo(t *rapid.T, most int) int { return rapid.IntRange(1, most).Draw(t, "number") }

// drawConfig draws a configuration in which limits are small enough to be reached.
func drawConfig(t *rapid.T, a ability) (c driver.Config) {
	sometimes := func(most int) int {
		if rarely(t, 2) {
			return upTo(t, most)
		}
		return 0
	}
	c.MaxMessages = sometimes(8)
	c.MaxBytes = 8 * sometimes(5)
	c.MaxInFlight = sometimes(4)
	c.MaxHold = pick(t, 0, 0, 0, 15*time.Second, 70*time.Second)
	if a.traits.DeadLetters {
		c.MaxDeliveries = sometimes(3)
		c.MaxDead = sometimes(3)
		c.RetainReady.Count = sometimes(5)
		c.RetainDead.Count = sometimes(4)
		c.DropExpired = a.drop && rarely(t, 1)
	}
	if a.traits.DeadLetters && !a.untimed {
		c.RetainReady.Age = pick(t, 0, 0, 0, 3*time.Second, 10*time.Second, 100*time.Second)
		c.RetainDead.Age = pick(t, 0, 0, 0, 3*time.Second, 10*time.Second, 100*time.Second)
	}
	if a.traits.TTL && !a.untimed {
		c.TTL = pick(t, 0, 0, 0, 5*time.Second, 60*time.Second)
	}
	if a.traits.Priorities && !a.untimed {
		c.PriorityAging = pick(t, 0, 0, time.Second, 5*time.Second)
	}
	if a.traits.DedupWindow > 0 {
		c.DedupWindow = pick(t, 0, 5*time.Second, 20*time.Second)
		if a.untimed {
			c.DedupWindow = time.Hour
		}
		c.DedupMax = sometimes(3)
	}
	if a.traits.Groups {
		c.StrictGroups = rarely(t, 1)
		c.FairGroups = a.fair && !c.StrictGroups && rarely(t, 1)
	}
	if c.StrictGroups || c.FairGroups {
		c.PriorityAging = 0
	}
	c.GroupLimits = drawLimits(t, a, c)
	return c
}

// drawLimits draws the limits of the groups of a queue. Rates have tokens that come back at
// whole seconds, together with other events, unless time does not matter.
func drawLimits(t *rapid.T, a ability, c driver.Config) string {
	if !a.limits || (!c.StrictGroups && !c.FairGroups) || rarely(t, 1) {
		return ""
	}
	limits := []string{"in-flight=1", "in-flight=2", "none"}
	if !a.untimed && len(a.crashes) == 0 { // a restart fills buckets
		limits = append(limits, "rate=1", "rate=0.5,burst=2", "rate=0.1,burst=3,in-flight=2")
	}
	text := pick(t, limits...)
	if rarely(t, 1) {
		text += "; g2: " + pick(t, limits...)
	}
	return text
}
