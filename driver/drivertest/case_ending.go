package drivertest

import (
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

// endingCases are those with very many endings, and with two observers. The others are in
// stories/ending.txt.
var endingCases = []testCase{
	{
		id: "OBS-1", title: "of very many deaths every one is counted",
		config: func(e *env) driver.Config { return driver.Config{RetainReady: driver.Retention{Age: e.tick()}} },
		needs:  endingNeeds, run: manyDeathsAreCounted,
	},
	{id: "OBS-1", title: "a stopped observer is observed nothing", needs: endingNeeds, run: stoppedHearsNothing},
}

func manyDeathsAreCounted(e *env, q driver.Queue) {
	observed, stop := e.observe()
	defer stop()
	const n = 300
	e.send(q, numbered("m", n)...)
	e.sleep(e.tick())
	e.expectStats(q, driver.Stats{Dead: n})
	sum := 0
	for _, ending := range observed.take() {
		if ending.Kind != driver.EndingDied || ending.Reason != driver.ReasonExpired || ending.Queue != queueName {
			e.failf("got %+v, want only deaths with reason expired", ending)
		}
		sum += ending.Count
	}
	if sum != n {
		e.failf("got of %d deaths, want %d", sum, n)
	}
}

func stoppedHearsNothing(e *env, q driver.Queue) {
	observed, stop := e.observe()
	other, stopOther := e.observe()
	defer stopOther()
	stop()
	stop()
	e.kill(q, "a")
	if got := observed.take(); len(got) != 0 {
		e.failf("the stopped observer got %+v", got)
	}
	if got := other.take(); len(got) != 1 {
		e.failf("the other observer got %+v, want one death", got)
	}
}
