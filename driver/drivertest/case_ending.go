package drivertest

import (
	"fmt"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// needObservable: the opener reports endings.
var needObservable = need{
	met: func(e *env, _ driver.Queue) bool { _, ok := e.opener.(driver.Observable); return ok },
	refused: func(e *env, _ driver.Queue) {
		e.t.Log("the opener does not implement Observable: it reports no endings")
	},
}

var endingNeeds = []need{needDeadLetters, needObservable}

var endingCases = []testCase{
	{
		id: "OBS-1", title: "each death is reported once, with its cause",
		config: always(driver.Config{MaxDeliveries: 2}), needs: endingNeeds, run: deathsAreReported,
	},
	{
		id: "OBS-1", title: "a message that is redriven and dies again is reported again",
		config: always(driver.Config{MaxDeliveries: 1}), needs: endingNeeds, run: secondDeathIsReported,
	},
	{id: "OBS-1", title: "a death that goes to another queue is reported", config: withDeadLetterTo, needs: endingNeeds, run: forwardedDeathIsReported},
	{
		id: "OBS-1", title: "of very many deaths every one is counted",
		config: func(e *env) driver.Config { return driver.Config{RetainReady: driver.Retention{Age: e.tick}} },
		needs:  endingNeeds, run: manyDeathsAreCounted,
	},
	{
		id: "RET-1", title: "a dead letter that retention removes by age is reported",
		config: func(e *env) driver.Config { return driver.Config{RetainDead: driver.Retention{Age: e.tick}} },
		needs:  endingNeeds, run: removedByAgeIsReported,
	},
	{
		id: "RET-1", title: "a dead letter that retention removes by number is reported",
		config: always(driver.Config{RetainDead: driver.Retention{Count: 1}}), needs: endingNeeds, run: removedByCountIsReported,
	},
	{
		id: "RET-2", title: "a message that is dropped is reported",
		config: dropping, needs: []need{needDropExpired, needObservable}, run: droppedIsReported,
	},
	{id: "OBS-1", title: "a stopped observer is observed nothing", needs: endingNeeds, run: stoppedHearsNothing},
}

// endings collects the endings that an observer gets.
type endings struct {
	env *env
	mu  sync.Mutex // guards got
	got []driver.Ending
}

func (e *env) observe() (*endings, func()) {
	observed := &endings{env: e}
	stop := e.opener.(driver.Observable).Observe(func(ending driver.Ending) {
		observed.mu.Lock()
		defer observed.mu.Unlock()
		observed.got = append(observed.got, ending)
	})
	return observed, stop
}

// expect checks all endings since its last call.
func (e *endings) expect(want ...driver.Ending) {
	e.env.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.got) != len(want) {
		e.env.failf("got %d endings %+v, want %d: %+v", len(e.got), e.got, len(want), want)
	}
	for i := range want {
		want[i].Queue, want[i].Count = queueName, 1
		if e.got[i] != want[i] {
			e.env.failf("got %+v, want %+v", e.got[i], want[i])
		}
	}
	e.got = nil
}

func deathsAreReported(e *env, q driver.Queue) {
	observed, stop := e.observe()
	defer stop()
	id := e.send(q, "a")[0]
	e.nack(q, e.receive(q, 1)[0], 0, "first failure")
	observed.expect()
	e.nack(q, e.receive(q, 1)[0], 0, "second failure")
	observed.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 2, LastError: "second failure"})

	id = e.send(q, "b")[0]
	e.deadLetter(q, e.receive(q, 1)[0], driver.ReasonParse)
	letters := e.dead(q)
	observed.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonParse, Deliveries: 1, LastError: letters[len(letters)-1].LastError})

	id = e.send(q, "c")[0]
	e.nack(q, e.receive(q, 1)[0], 0, "only failure")
	e.expire(q, e.receive(q, 1)[0])
	e.expectStats(q, driver.Stats{Dead: 3})
	observed.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 2, LastError: "only failure"})

	e.send(q, "d")
	e.ack(q, e.receive(q, 1)[0])
	observed.expect()
}

func secondDeathIsReported(e *env, q driver.Queue) {
	observed, stop := e.observe()
	defer stop()
	id := e.send(q, "a")[0]
	for range 3 {
		e.nack(q, e.receive(q, 1)[0], 0, "failure")
		observed.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 1, LastError: "failure"})
		e.redrive(q, []string{id}, 0, 1)
		observed.expect()
	}
}

func forwardedDeathIsReported(e *env, q driver.Queue) {
	observed, stop := e.observe()
	defer stop()
	id := e.send(q, "a")[0]
	e.nack(q, e.receive(q, 1)[0], 0, "first failure")
	e.nack(q, e.receive(q, 1)[0], 0, "second failure")
	e.expectNext(e.open(deadLetterQueue), "a")
	observed.expect(driver.Ending{Kind: driver.EndingDied, ID: id, Reason: driver.ReasonMaxDeliveries, Deliveries: 2, LastError: "second failure"})
}

func manyDeathsAreCounted(e *env, q driver.Queue) {
	observed, stop := e.observe()
	defer stop()
	const n = 300
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	e.send(q, bodies...)
	e.sleep(e.tick)
	e.expectStats(q, driver.Stats{Dead: n})
	sum := 0
	observed.mu.Lock()
	defer observed.mu.Unlock()
	for _, ending := range observed.got {
		if ending.Kind != driver.EndingDied || ending.Reason != driver.ReasonExpired || ending.Queue != queueName {
			e.failf("got %+v, want only deaths with reason expired", ending)
		}
		sum += ending.Count
	}
	if sum != n {
		e.failf("got of %d deaths, want %d", sum, n)
	}
}

func removedByAgeIsReported(e *env, q driver.Queue) {
	id := e.kill(q, "a")[0]
	observed, stop := e.observe()
	defer stop()
	letter := e.onlyDead(q)
	e.sleep(e.tick)
	e.expectStats(q, driver.Stats{})
	observed.expect(driver.Ending{Kind: driver.EndingRemoved, ID: id, Reason: letter.Reason, Deliveries: letter.Deliveries, LastError: letter.LastError})
}

func removedByCountIsReported(e *env, q driver.Queue) {
	first := e.kill(q, "a")[0]
	letter := e.onlyDead(q)
	observed, stop := e.observe()
	defer stop()
	second := e.kill(q, "b")[0]
	e.expectStats(q, driver.Stats{Dead: 1})
	observed.expect(
		driver.Ending{Kind: driver.EndingDied, ID: second, Reason: letter.Reason, Deliveries: letter.Deliveries, LastError: letter.LastError},
		driver.Ending{Kind: driver.EndingRemoved, ID: first, Reason: letter.Reason, Deliveries: letter.Deliveries, LastError: letter.LastError},
	)
	if removed, err := q.Discard(e.ctx(), []string{second}); err != nil || removed != 1 {
		e.failf("discard: removed %d, %v", removed, err)
	}
	observed.expect()
}

func droppedIsReported(e *env, q driver.Queue) {
	observed, stop := e.observe()
	defer stop()
	id := e.send(q, "a")[0]
	e.sleep(2 * e.tick)
	e.expectStats(q, driver.Stats{})
	observed.expect(driver.Ending{Kind: driver.EndingDropped, ID: id, Reason: driver.ReasonExpired})
}

func stoppedHearsNothing(e *env, q driver.Queue) {
	observed, stop := e.observe()
	other, stopOther := e.observe()
	defer stopOther()
	stop()
	stop()
	e.kill(q, "a")
	observed.expect()
	if other.mu.Lock(); len(other.got) != 1 {
		e.failf("the other observer got %+v, want one death", other.got)
	}
	other.mu.Unlock()
}
