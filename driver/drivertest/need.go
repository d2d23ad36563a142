package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A need is something a backend may lack. It knows how to detect it, and how a backend without
// it must behave.
type need struct {
	met     func(e *env, q driver.Queue) bool
	refused func(e *env, q driver.Queue)
}

// needFIFO: the queue delivers in the order of sending. Without it all messages must still
// arrive.
var needFIFO = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().Ordering == driver.OrderingFIFO },
	refused: func(e *env, q driver.Queue) {
		e.send(q, "a", "b", "c")
		e.expectNext(q, "a", "b", "c")
	},
}

// needExactStats: Stats is a snapshot. Without it Stats must still answer.
var needExactStats = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().ExactStats },
	refused: func(e *env, q driver.Queue) {
		_, err := q.Stats(e.ctx())
		e.ok(err, "stats")
	},
}

// needDedup: dedup keys are honoured.
var needDedup = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().DedupWindow > 0 },
	refused: func(e *env, q driver.Queue) {
		_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), DedupKey: "key"}})
		e.expectInvalid(err, driver.ErrUnsupported, "", "send with a dedup key to a queue without a dedup window")
		e.expectEmpty(q)
	},
}

// needGroups: groups are accepted.
var needGroups = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().Groups },
	refused: func(e *env, q driver.Queue) {
		_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), Group: "g"}})
		e.expectInvalid(err, driver.ErrUnsupported, "", "send with a group to a queue without groups")
		e.expectEmpty(q)
	},
}

// needClock: the wall clock of the backend can be set. Without it the claim cannot be checked.
var needClock = need{
	met:     func(e *env, _ driver.Queue) bool { return e.backend.OpenWithClock != nil },
	refused: func(e *env, _ driver.Queue) { e.t.Log("the wall clock of the backend cannot be set") },
}

// needDeliverAt: due times are accepted.
var needDeliverAt = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().DeliverAt },
	refused: func(e *env, q driver.Queue) {
		_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), DeliverAt: time.Now().Add(time.Second)}})
		e.expectInvalid(err, driver.ErrUnsupported, "", "send with a due time to a queue that takes none")
		e.expectEmpty(q)
	},
}

// needTTL: messages can have a time to live. Without it neither messages nor queues can be given
// one.
var needTTL = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().TTL },
	refused: func(e *env, q driver.Queue) {
		_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), TTL: time.Second}})
		e.expectInvalid(err, driver.ErrUnsupported, "", "send with a time to live to a queue that has none")
		e.expectEmpty(q)
		if admin, ok := e.opener.(driver.Admin); ok {
			e.expectInvalid(admin.ConfigureQueue(e.ctx(), queueName, driver.Config{TTL: time.Second}), driver.ErrUnsupported, "", "configure a time to live")
		}
	},
}

// needPeekCursor: a peek can go on where another one ended.
var needPeekCursor = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().PeekCursor },
	refused: func(e *env, q driver.Queue) {
		err := sequenceError(q.Peek(e.ctx(), driver.Query{States: []driver.State{driver.StateReady}, Cursor: new(string)}))
		e.expectCode(err, driver.ErrUnsupported, "peek with a cursor in a queue that takes none")
	},
}

// needPeekLast: a peek can begin near the end.
var needPeekLast = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().PeekLast },
	refused: func(e *env, q driver.Queue) {
		err := sequenceError(q.Peek(e.ctx(), driver.Query{States: []driver.State{driver.StateReady}, Last: 1}))
		e.expectCode(err, driver.ErrUnsupported, "peek at the last messages of a queue that cannot begin there")
	},
}

// needPriorities: messages can have priorities. Without it no message can be given one.
var needPriorities = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().Priorities },
	refused: func(e *env, q driver.Queue) {
		_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), Priority: 1}})
		e.expectInvalid(err, driver.ErrUnsupported, "", "send with a priority to a queue that has none")
		e.expectEmpty(q)
		if q.Traits().Edit {
			id := e.sendOne(q, driver.Outgoing{Body: []byte("b")}).ID
			_, err := q.Edit(e.ctx(), id, driver.Edit{Prioritize: true, Priority: 1})
			e.expectInvalid(err, driver.ErrUnsupported, "", "change of a priority in a queue that has none")
			e.expectNext(q, "b")
		}
	},
}

// needUniqueKeys: messages can have unique keys. Without it no message can be given one.
var needUniqueKeys = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().UniqueKeys },
	refused: func(e *env, q driver.Queue) {
		for _, msg := range []driver.Outgoing{{Body: []byte("a"), UniqueKey: "k"}, {Body: []byte("a"), UniqueKey: "k", Replace: true}} {
			_, err := q.Send(e.ctx(), []driver.Outgoing{msg})
			e.expectInvalid(err, driver.ErrUnsupported, "", "send with a unique key to a queue that has none")
			e.expectEmpty(q)
		}
	},
}

// needGroupLimits: groups can have limits. Without it none can be given one, and none be
// throttled.
var needGroupLimits = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().GroupLimits },
	refused: func(e *env, q driver.Queue) {
		e.expectCode(q.Throttle(e.ctx(), "g", time.Second), driver.ErrUnsupported, "throttle a group of a queue without limits")
		if admin, ok := e.opener.(driver.Admin); ok {
			err := admin.ConfigureQueue(e.ctx(), "limited", driver.Config{StrictGroups: true, GroupLimits: "in-flight=1"})
			e.expectCode(err, driver.ErrUnsupported, "configure limits by group")
		}
	},
}

// needSeals: seals are kept.
var needSeals = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().Seals },
	refused: func(e *env, q driver.Queue) {
		_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), Seal: []byte("seal")}})
		e.expectInvalid(err, driver.ErrUnsupported, "", "send with a seal to a queue that keeps none")
		e.expectEmpty(q)
	},
}

// needRelease: deliveries can be given back uncounted. Without it they stay in flight.
var needRelease = need{
	met: func(_ *env, q driver.Queue) bool { return q.Traits().Release },
	refused: func(e *env, q driver.Queue) {
		e.send(q, "a")
		held := e.expectNext(q, "a")[0]
		for _, mode := range []driver.NackMode{driver.NackRelease, driver.NackPutBack} {
			err := q.Nack(e.ctx(), []driver.Nack{{Receipt: held.Receipt, Mode: mode}})
			e.expectInvalid(driver.At(err, 0), driver.ErrUnsupported, "", nackVerbs[mode]+" on a queue that counts every delivery")
		}
		e.ack(q, held)
	},
}

// needDeadLetters and the like: the queue has an ability. Without it, the methods of the
// ability return ErrUnsupported.
var (
	needDeadLetters = abilityDeadLetters.need()
	needPeek        = abilityPeek.need()
	needMove        = abilityMove.need()
	needLateAck     = abilityLateAck.need()
	needForget      = abilityForgetDedup.need()
	needUsage       = abilityUsage.need()
	needPause       = abilityPause.need()
	needSchedules   = abilitySchedules.need()
	needEdit        = abilityEdit.need()
)

// needDropExpired and needAnnotation: the queue under test, which was configured with it, has a
// setting. A backend that does not support it leaves it out of QueueConfig, which returns the
// configuration in force.
var (
	needDropExpired = needInForce("DropExpired", func(c driver.Config) bool { return c.DropExpired })
	needAnnotation  = needInForce("Annotation", func(c driver.Config) bool { return c.Annotation != "" })
)

func needInForce(setting string, isSet func(driver.Config) bool) need {
	return need{
		met: func(e *env, _ driver.Queue) bool {
			admin, ok := e.opener.(driver.Admin)
			if !ok {
				return false
			}
			config, err := admin.QueueConfig(e.ctx(), queueName)
			e.ok(err, "read the configuration")
			return isSet(config)
		},
		refused: func(e *env, _ driver.Queue) {
			e.t.Logf("the backend does not support %s, as its configuration shows", setting)
		},
	}
}

// needAdmin: the opener manages queues.
var needAdmin = need{
	met: func(e *env, _ driver.Queue) bool { _, ok := e.opener.(driver.Admin); return ok },
	refused: func(e *env, _ driver.Queue) {
		e.t.Log("the opener does not implement Admin: its queues cannot be managed")
	},
}

// needScheduleLister: the opener lists the queues that have schedules.
var needScheduleLister = need{
	met: func(e *env, _ driver.Queue) bool { _, ok := e.opener.(driver.ScheduleLister); return ok },
	refused: func(e *env, _ driver.Queue) {
		e.t.Log("the opener does not implement ScheduleLister: a process must know which queues have schedules")
	},
}

// needCloser: the opener can be closed.
var needCloser = need{
	met: func(e *env, _ driver.Queue) bool { _, ok := e.opener.(closer); return ok },
	refused: func(e *env, _ driver.Queue) {
		e.t.Log("the opener has no Close")
	},
}

// needCrash: the backend's tests can crash it this way. A backend whose messages do not survive
// must report that in its traits, and one that claims to survive must show it at least for a
// clean restart.
func needCrash(how Crash) need {
	return need{
		met: func(e *env, _ driver.Queue) bool { return e.backend.survives(how) },
		refused: func(e *env, q driver.Queue) {
			durability := q.Traits().Durability
			if e.backend.Restart == nil && durability.Restarts() {
				e.failf("Traits.Durability is %q, but Backend.Restart is nil and so nothing proves it", durability)
			}
			e.t.Logf("the backend's tests do not offer %v; Traits.Durability is %q", how, durability)
		},
	}
}
