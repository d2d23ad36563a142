package drivertest

import (
	"github.com/mailboxmq/mailbox/driver"
)

// A need is something a backend may lack. It knows both sides: how to tell
// that it is there, and how a backend without it must behave.
type need struct {
	met     func(s *session, q driver.Queue) bool
	refused func(s *session, q driver.Queue)
}

// needFIFO: the queue delivers in the order of sending. Without it everything
// must arrive all the same.
var needFIFO = need{
	met: func(_ *session, q driver.Queue) bool { return q.Traits().Ordering == driver.OrderingFIFO },
	refused: func(s *session, q driver.Queue) {
		s.send(q, "a", "b", "c")
		s.expectNext(q, "a", "b", "c")
	},
}

// needExactStats: Stats is a snapshot. Without it there is still an answer.
var needExactStats = need{
	met: func(_ *session, q driver.Queue) bool { return q.Traits().ExactStats },
	refused: func(s *session, q driver.Queue) {
		_, err := q.Stats(s.ctx())
		s.ok(err, "stats")
	},
}

// needDedup: dedup keys are honoured.
var needDedup = need{
	met: func(_ *session, q driver.Queue) bool { return q.Traits().DedupWindow > 0 },
	refused: func(s *session, q driver.Queue) {
		_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte("a"), DedupKey: "key"}})
		s.expectInvalid(err, driver.ErrUnsupported, "", "send with a dedup key to a queue without a dedup window")
		s.expectEmpty(q)
	},
}

// needGroups: groups are accepted.
var needGroups = need{
	met: func(_ *session, q driver.Queue) bool { return q.Traits().Groups },
	refused: func(s *session, q driver.Queue) {
		_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte("a"), Group: "g"}})
		s.expectInvalid(err, driver.ErrUnsupported, "", "send with a group to a queue without groups")
		s.expectEmpty(q)
	},
}

// needDeadLetters and the like: the queue has an ability. Without it, the methods of
// the ability answer ErrUnsupported.
var (
	needDeadLetters = abilityDeadLetters.need()
	needPeek        = abilityPeek.need()
	needMove        = abilityMove.need()
	needLateAck     = abilityLateAck.need()
	needForget      = abilityForgetDedup.need()
	needUsage       = abilityUsage.need()
)

// needDropExpired and needAnnotation: the queue under test, which was configured
// with it, has a setting. A backend that does not know it says so in QueueConfig,
// which tells what is in force.
var (
	needDropExpired = needInForce("DropExpired", func(c driver.Config) bool { return c.DropExpired })
	needAnnotation  = needInForce("Annotation", func(c driver.Config) bool { return c.Annotation != "" })
)

func needInForce(setting string, isSet func(driver.Config) bool) need {
	return need{
		met: func(s *session, _ driver.Queue) bool {
			admin, ok := s.opener.(driver.Admin)
			if !ok {
				return false
			}
			config, err := admin.QueueConfig(s.ctx(), queueName)
			s.ok(err, "read the configuration")
			return isSet(config)
		},
		refused: func(s *session, _ driver.Queue) {
			s.t.Logf("the backend does not have %s, and says so in its configuration", setting)
		},
	}
}

// needAdmin: the opener manages queues.
var needAdmin = need{
	met: func(s *session, _ driver.Queue) bool { _, ok := s.opener.(driver.Admin); return ok },
	refused: func(s *session, _ driver.Queue) {
		s.t.Log("the opener does not implement Admin, and so says that its queues cannot be managed")
	},
}

// needCloser: the opener can be closed.
var needCloser = need{
	met: func(s *session, _ driver.Queue) bool { _, ok := s.opener.(closer); return ok },
	refused: func(s *session, _ driver.Queue) {
		s.t.Log("the opener has no Close")
	},
}

// needCrash: the backend's tests can take it down this way. A backend whose
// messages do not survive must say so in its traits, and one that claims to
// survive must be able to show it at least for a clean restart.
func needCrash(how Crash) need {
	return need{
		met: func(s *session, _ driver.Queue) bool { return s.backend.survives(how) },
		refused: func(s *session, q driver.Queue) {
			durability := q.Traits().Durability
			if s.backend.Restart == nil && durability.Restarts() {
				s.failf("Traits.Durability is %q, but Backend.Restart is nil and so nothing proves it", durability)
			}
			s.t.Logf("the backend's tests do not offer %v; Traits.Durability is %q", how, durability)
		},
	}
}
