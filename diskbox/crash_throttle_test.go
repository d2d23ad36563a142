package diskbox

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Clients throttle groups of queues with crashLimits, which are too high to matter, so that
// Stats.Throttled tells which groups are throttled after a power cut. In queues with crashCaps it
// tells which groups have as many messages in flight as they may.

const (
	crashLimits = "in-flight=1000; group 1: in-flight=900"
	crashCaps   = "in-flight=1; group 1: in-flight=2; group 2: none"
)

func (b *crashModel) throttles() bool { return b.config.GroupLimits == crashLimits }

// crashCap returns how many messages of a group may be in flight by crashCaps.
func crashCap(group string) int {
	switch group {
	case crashGroup(1):
		return 2
	case crashGroup(2), "":
		return math.MaxInt
	}
	return 1
}

// crashThrottles is what clients know of the throttled groups of a queue.
type crashThrottles struct {
	groups  [crashGroups]struct{ atLeast, atMost time.Time } // the times until which a group is
	pending bool                                             // a client throttles a group, or did when the power was cut
}

func crashGroup(n int) string { return fmt.Sprintf("group %d", n) }

// throttle throttles a group, or ends that, one client at a time.
func (c *crashClient) throttle(q crashQueue) error {
	models, known := &c.env.models, &q.model.throttled
	n, wait := c.rng.IntN(crashGroups), c.pick(0, time.Second, 10*time.Second, time.Minute)
	models.mu.Lock()
	if known.pending {
		models.mu.Unlock()
		return nil
	}
	g := &known.groups[n]
	before, began := *g, time.Now()
	known.pending = true
	g.atMost = began.Add(driver.MaxThrottle)
	if wait == 0 {
		g.atLeast = time.Time{}
	}
	models.mu.Unlock()
	err := q.queue.Throttle(c.ctx, crashGroup(n), wait)
	if errors.Is(err, driver.ErrUnavailable) {
		return err // it stays pending
	}
	models.mu.Lock()
	defer models.mu.Unlock()
	known.pending = false
	if wait == 0 {
		g.atMost = time.Time{}
		return err
	}
	g.atLeast, g.atMost = later(before.atLeast, began.Add(wait)), later(before.atMost, time.Now().Add(wait))
	return err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// checkThrottled compares how many ready messages of throttled groups there are with those that
// there must and may be, and removes their number from the counts.
func (v *crashResult) checkThrottled(model *crashModel, c *crashContent, at time.Time) {
	must, may := 0, 0
	if model.config.GroupLimits == crashCaps {
		must = atCaps(c.peeked)
		may = must
	}
	for n := range c.peeked {
		if c.peeked[n].State != driver.StateReady {
			continue
		}
		for group, known := range model.throttled.groups {
			if c.peeked[n].Group != crashGroup(group) {
				continue
			}
			if known.atLeast.After(at) {
				must++
			}
			if known.atMost.After(at) {
				may++
			}
		}
	}
	if got := c.stats.Throttled; got < must || got > may {
		v.addf("queue %s: %d messages are throttled, not %d to %d", model.name, got, must, may)
	}
	c.stats.Throttled = 0
}

// atCaps returns how many ready messages are in groups that have as many messages in flight as
// crashCaps allow.
func atCaps(peeked []driver.Peeked) (n int) {
	inFlight := make(map[string]int)
	for i := range peeked {
		if peeked[i].State == driver.StateInFlight {
			inFlight[peeked[i].Group]++
		}
	}
	for i := range peeked {
		if group := peeked[i].Group; peeked[i].State == driver.StateReady && inFlight[group] >= crashCap(group) {
			n++
		}
	}
	return n
}
