package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A queueAbility is an optional part of driver.Queue that driver.Traits reports.
type queueAbility struct {
	has func(driver.Traits) bool
	// calls calls each method of the ability, with arguments that change nothing.
	calls func(e *env, q driver.Queue) map[string]error
}

// abilities are all optional parts.
var abilities = []*queueAbility{
	&abilityDeadLetters, &abilityPeek, &abilityMove, &abilityLateAck, &abilityForgetDedup, &abilityUsage, &abilityPause, &abilityThrottle, &abilityEdit, &abilitySchedules,
}

var abilityDeadLetters = queueAbility{
	has: func(t driver.Traits) bool { return t.DeadLetters },
	calls: func(e *env, q driver.Queue) map[string]error {
		_, redrive := q.Redrive(e.ctx(), []string{}, 0)
		_, discard := q.Discard(e.ctx(), nil)
		_, purge := q.PurgeDead(e.ctx())
		return map[string]error{
			"dead-letter": q.DeadLetter(e.ctx(), nil), "list dead letters": firstError(q.DeadLetters(e.ctx())),
			"redrive": redrive, "discard": discard, "purge dead letters": purge,
		}
	},
}

var abilityPeek = queueAbility{
	has: func(t driver.Traits) bool { return t.Peek },
	calls: func(e *env, q driver.Queue) map[string]error {
		return map[string]error{"peek": firstError(q.Peek(e.ctx(), driver.Query{}))}
	},
}

var abilityMove = queueAbility{
	has: func(t driver.Traits) bool { return t.Move },
	calls: func(e *env, q driver.Queue) map[string]error {
		_, err := q.Move(e.ctx(), "", 1)
		return map[string]error{"move": err}
	},
}

var abilityLateAck = queueAbility{
	has: func(t driver.Traits) bool { return t.LateAck },
	calls: func(e *env, q driver.Queue) map[string]error {
		return map[string]error{"late ack": q.AckLate(e.ctx(), nil), "late extend": q.ExtendLate(e.ctx(), nil)}
	},
}

var abilityForgetDedup = queueAbility{
	has: func(t driver.Traits) bool { return t.ForgetDedup },
	calls: func(e *env, q driver.Queue) map[string]error {
		return map[string]error{"forget dedup keys": q.ForgetDedup(e.ctx())}
	},
}

var abilityUsage = queueAbility{
	has: func(t driver.Traits) bool { return t.Usage },
	calls: func(e *env, q driver.Queue) map[string]error {
		_, err := q.Usage(e.ctx())
		return map[string]error{"usage": err}
	},
}

var abilityPause = queueAbility{
	has: func(t driver.Traits) bool { return t.Pause },
	calls: func(e *env, q driver.Queue) map[string]error {
		return map[string]error{"pause": q.Pause(e.ctx()), "resume": q.Resume(e.ctx())}
	},
}

var abilityThrottle = queueAbility{
	has: func(t driver.Traits) bool { return t.GroupLimits },
	calls: func(e *env, q driver.Queue) map[string]error {
		return map[string]error{"throttle": q.Throttle(e.ctx(), "g", 0)}
	},
}

var abilitySchedules = queueAbility{
	has: func(t driver.Traits) bool { return t.Schedules },
	calls: func(e *env, q driver.Queue) map[string]error {
		_, _, err := q.Fire(e.ctx(), driver.Firing{Name: "nightly", Revision: 1})
		return map[string]error{"fire": err, "list schedules": firstError(q.Schedules(e.ctx(), ""))}
	},
}

var abilityEdit = queueAbility{
	has: func(t driver.Traits) bool { return t.Edit },
	calls: func(e *env, q driver.Queue) map[string]error {
		errs := make(map[string]error)
		for what, edit := range map[string]driver.Edit{
			"remove": {Remove: true}, "make ready": {Ready: true}, "change the due time": {DeliverAt: time.Now().Add(e.hold)},
		} {
			_, errs[what] = q.Edit(e.ctx(), unknownID, edit)
		}
		return errs
	},
}

// expectRefused checks that all calls of an unsupported ability fail.
func (a *queueAbility) expectRefused(e *env, q driver.Queue) {
	e.t.Helper()
	for call, err := range a.calls(e, q) {
		e.expectCode(err, driver.ErrUnsupported, "%s, which Traits does not promise", call)
	}
}

func (a *queueAbility) need() need {
	return need{
		met:     func(_ *env, q driver.Queue) bool { return a.has(q.Traits()) },
		refused: func(e *env, q driver.Queue) { a.expectRefused(e, q) },
	}
}
