package drivertest

import (
	"github.com/mailboxmq/mailbox/driver"
)

// A queueAbility is one that driver.Traits tells of.
type queueAbility struct {
	has func(driver.Traits) bool
	// calls calls each method of the ability, with arguments that change nothing.
	calls func(s *session, q driver.Queue) map[string]error
}

// abilities are all of them.
var abilities = []*queueAbility{
	&abilityDeadLetters, &abilityPeek, &abilityMove, &abilityLateAck, &abilityForgetDedup, &abilityUsage,
}

var abilityDeadLetters = queueAbility{
	has: func(t driver.Traits) bool { return t.DeadLetters },
	calls: func(s *session, q driver.Queue) map[string]error {
		_, redrive := q.Redrive(s.ctx(), []string{}, 0)
		_, discard := q.Discard(s.ctx(), nil)
		_, purge := q.PurgeDead(s.ctx())
		return map[string]error{
			"dead-letter": q.DeadLetter(s.ctx(), nil), "list dead letters": firstError(q.DeadLetters(s.ctx())),
			"redrive": redrive, "discard": discard, "purge dead letters": purge,
		}
	},
}

var abilityPeek = queueAbility{
	has: func(t driver.Traits) bool { return t.Peek },
	calls: func(s *session, q driver.Queue) map[string]error {
		return map[string]error{"peek": firstError(q.Peek(s.ctx(), driver.Query{}))}
	},
}

var abilityMove = queueAbility{
	has: func(t driver.Traits) bool { return t.Move },
	calls: func(s *session, q driver.Queue) map[string]error {
		_, err := q.Move(s.ctx(), "", 1)
		return map[string]error{"move": err}
	},
}

var abilityLateAck = queueAbility{
	has: func(t driver.Traits) bool { return t.LateAck },
	calls: func(s *session, q driver.Queue) map[string]error {
		return map[string]error{"late ack": q.AckLate(s.ctx(), nil), "late extend": q.ExtendLate(s.ctx(), nil)}
	},
}

var abilityForgetDedup = queueAbility{
	has: func(t driver.Traits) bool { return t.ForgetDedup },
	calls: func(s *session, q driver.Queue) map[string]error {
		return map[string]error{"forget dedup keys": q.ForgetDedup(s.ctx())}
	},
}

var abilityUsage = queueAbility{
	has: func(t driver.Traits) bool { return t.Usage },
	calls: func(s *session, q driver.Queue) map[string]error {
		_, err := q.Usage(s.ctx())
		return map[string]error{"usage": err}
	},
}

// expectRefused checks that a queue without the ability says so.
func (a *queueAbility) expectRefused(s *session, q driver.Queue) {
	s.t.Helper()
	for call, err := range a.calls(s, q) {
		s.expectCode(err, driver.ErrUnsupported, "%s, which Traits does not promise", call)
	}
}

func (a *queueAbility) need() need {
	return need{
		met:     func(_ *session, q driver.Queue) bool { return a.has(q.Traits()) },
		refused: func(s *session, q driver.Queue) { a.expectRefused(s, q) },
	}
}
