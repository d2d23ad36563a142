package drivertest

import (
	"fmt"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// needObservable: the opener tells of endings.
var needObservable = need{
	met: func(s *session, _ driver.Queue) bool { _, ok := s.opener.(driver.Observable); return ok },
	refused: func(s *session, _ driver.Queue) {
		s.t.Log("the opener does not implement Observable, and so says that it tells of no endings")
	},
}

var endingNeeds = []need{needDeadLetters, needObservable}

var endingCases = []testCase{
	{
		id: "OBS-1", title: "each death is told once, with its cause",
		config: always(driver.Config{MaxDeliveries: 2}), needs: endingNeeds, run: deathsAreTold,
	},
	{
		id: "OBS-1", title: "a message that is redriven and dies again is told again",
		config: always(driver.Config{MaxDeliveries: 1}), needs: endingNeeds, run: secondDeathIsTold,
	},
	{id: "OBS-1", title: "a death that goes to another queue is told", config: buriedElsewhere, needs: endingNeeds, run: forwardedDeathIsTold},
	{
		id: "OBS-1", title: "of very many deaths every one is counted",
		config: func(s *session) driver.Config { return driver.Config{RetainReady: driver.Retention{Age: s.tick}} },
		needs:  endingNeeds, run: manyDeathsAreCounted,
	},
	{
		id: "RET-1", title: "a dead letter that retention removes by age is told",
		config: func(s *session) driver.Config { return driver.Config{RetainDead: driver.Retention{Age: s.tick}} },
		needs:  endingNeeds, run: removedByAgeIsTold,
	},
	{
		id: "RET-1", title: "a dead letter that retention removes by number is told",
		config: always(driver.Config{RetainDead: driver.Retention{Count: 1}}), needs: endingNeeds, run: removedByCountIsTold,
	},
	{
		id: "RET-2", title: "a message that is dropped is told",
		config: dropping, needs: []need{needDropExpired, needObservable}, run: droppedIsTold,
	},
	{id: "OBS-1", title: "an observer that stopped hears nothing", needs: endingNeeds, run: stoppedHearsNothing},
}

// endings is what an observer of a case has heard.
type endings struct {
	session *session
	mu      sync.Mutex // guards heard
	heard   []driver.Ending
}

func (s *session) observe() (*endings, func()) {
	e := &endings{session: s}
	stop := s.opener.(driver.Observable).Observe(func(ending driver.Ending) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard = append(e.heard, ending)
	})
	return e, stop
}

// expect checks everything that was heard since it was last called.
func (e *endings) expect(want ...driver.Ending) {
	e.session.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.heard) != len(want) {
		e.session.failf("heard %d endings %+v, want %d: %+v", len(e.heard), e.heard, len(want), want)
	}
	for i := range want {
		want[i].Queue, want[i].Count = queueName, 1
		if e.heard[i] != want[i] {
			e.session.failf("heard %+v, want %+v", e.heard[i], want[i])
		}
	}
	e.heard = nil
}

func deathsAreTold(s *session, q driver.Queue) {
	told, stop := s.observe()
	defer stop()
	id := s.send(q, "a")[0]
	s.nack(q, s.receive(q, 1)[0], 0, "first failure")
	told.expect()
	s.nack(q, s.receive(q, 1)[0], 0, "second failure")
	told.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 2, LastError: "second failure"})

	id = s.send(q, "b")[0]
	s.bury(q, s.receive(q, 1)[0], driver.ReasonParse)
	letters := s.dead(q)
	told.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonParse, Deliveries: 1, LastError: letters[len(letters)-1].LastError})

	id = s.send(q, "c")[0]
	s.nack(q, s.receive(q, 1)[0], 0, "only failure")
	s.expire(q, s.receive(q, 1)[0])
	s.expectStats(q, driver.Stats{Dead: 3})
	told.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 2, LastError: "only failure"})

	s.send(q, "d")
	s.ack(q, s.receive(q, 1)[0])
	told.expect()
}

func secondDeathIsTold(s *session, q driver.Queue) {
	told, stop := s.observe()
	defer stop()
	id := s.send(q, "a")[0]
	for range 3 {
		s.nack(q, s.receive(q, 1)[0], 0, "failure")
		told.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 1, LastError: "failure"})
		s.redrive(q, []string{id}, 0, 1)
		told.expect()
	}
}

func forwardedDeathIsTold(s *session, q driver.Queue) {
	told, stop := s.observe()
	defer stop()
	id := s.send(q, "a")[0]
	s.nack(q, s.receive(q, 1)[0], 0, "first failure")
	s.nack(q, s.receive(q, 1)[0], 0, "second failure")
	s.expectNext(s.open(graveQueue), "a")
	told.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 2, LastError: "second failure"})
}

func manyDeathsAreCounted(s *session, q driver.Queue) {
	told, stop := s.observe()
	defer stop()
	const n = 300
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	s.send(q, bodies...)
	s.sleep(s.tick)
	s.expectStats(q, driver.Stats{Dead: n})
	sum := 0
	told.mu.Lock()
	defer told.mu.Unlock()
	for _, ending := range told.heard {
		if ending.Kind != driver.EndingDied || ending.Reason != driver.ReasonExpired || ending.Queue != queueName {
			s.failf("heard %+v, want only deaths with reason expired", ending)
		}
		sum += ending.Count
	}
	if sum != n {
		s.failf("heard of %d deaths, want %d", sum, n)
	}
}

func removedByAgeIsTold(s *session, q driver.Queue) {
	id := s.kill(q, "a")[0]
	told, stop := s.observe()
	defer stop()
	letter := s.onlyDead(q)
	s.sleep(s.tick)
	s.expectStats(q, driver.Stats{})
	told.expect(driver.Ending{Kind: driver.EndingRemoved, ID: id, Reason: letter.Reason, Deliveries: letter.Deliveries, LastError: letter.LastError})
}

func removedByCountIsTold(s *session, q driver.Queue) {
	first := s.kill(q, "a")[0]
	letter := s.onlyDead(q)
	told, stop := s.observe()
	defer stop()
	second := s.kill(q, "b")[0]
	s.expectStats(q, driver.Stats{Dead: 1})
	told.expect(
		driver.Ending{Kind: driver.EndingDied, ID: second, Reason: letter.Reason, Deliveries: letter.Deliveries, LastError: letter.LastError},
		driver.Ending{Kind: driver.EndingRemoved, ID: first, Reason: letter.Reason, Deliveries: letter.Deliveries, LastError: letter.LastError},
	)
	if removed, err := q.Discard(s.ctx(), []string{second}); err != nil || removed != 1 {
		s.failf("discard: removed %d, %v", removed, err)
	}
	told.expect()
}

func droppedIsTold(s *session, q driver.Queue) {
	told, stop := s.observe()
	defer stop()
	id := s.send(q, "a")[0]
	s.sleep(2 * s.tick)
	s.expectStats(q, driver.Stats{})
	told.expect(driver.Ending{Kind: driver.EndingDropped, ID: id, Reason: driver.ReasonExpired})
}

func stoppedHearsNothing(s *session, q driver.Queue) {
	told, stop := s.observe()
	other, stopOther := s.observe()
	defer stopOther()
	stop()
	stop()
	s.kill(q, "a")
	told.expect()
	if other.mu.Lock(); len(other.heard) != 1 {
		s.failf("the other observer heard %+v, want one death", other.heard)
	}
	other.mu.Unlock()
}
