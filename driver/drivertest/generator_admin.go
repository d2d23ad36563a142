package drivertest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// The operations of operators, and restarts.

func (g *planner) pause(t *rapid.T) operation {
	if !rarely(t, 1) {
		return g.receive(t)
	}
	return pauseOperation{}
}

// throttle throttles a group, or ends that; the time may be too long.
func (g *planner) throttle(t *rapid.T) operation {
	op := throttleOperation{group: pick(t, "g1", "g1", "g2"), wait: g.duration(t)}
	if rarely(t, 6) {
		op.wait = driver.MaxThrottle + time.Second
	}
	return op
}

func (g *planner) resume(*rapid.T) operation { return resumeOperation{} }

func (g *planner) configure(t *rapid.T) operation {
	if !rarely(t, 2) {
		return g.receive(t)
	}
	config := drawConfig(t, g.ability)
	config.StrictGroups, config.FairGroups = g.config.StrictGroups, g.config.FairGroups
	config.DedupWindow = g.config.DedupWindow
	config.GroupLimits = drawLimits(t, g.ability, config)
	if config.StrictGroups || config.FairGroups {
		config.PriorityAging = 0
	}
	g.config = config
	return configureOperation{config}
}

// restart restarts the backend. After a crash that is not clean, only stored changes must
// survive, and leases need not be stored; but all changes before a stored message are stored
// too.
func (g *planner) restart(t *rapid.T) operation {
	how := pick(t, g.crashes...)
	if how != CrashClean && !g.stored {
		return g.send(t)
	}
	return restartOperation{how}
}
