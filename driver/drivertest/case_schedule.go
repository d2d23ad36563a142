package drivertest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var scheduleNeeds = []need{needSchedules}

var scheduleCases = []testCase{
	{id: "TIME-1", title: "a firing sends its messages and changes its schedule", needs: scheduleNeeds, run: firingDoesBoth},
	{id: "TIME-1", title: "of two firings with one revision one is done", needs: scheduleNeeds, run: firingIsDoneOnce},
	{id: "TIME-1", title: "of many firings at once one is done", needs: scheduleNeeds, run: oneOfManyFiringsIsDone},
	{id: "TIME-1", title: "a firing with another revision changes nothing", needs: scheduleNeeds, run: otherRevisionChangesNothing},
	{id: "TIME-1", title: "a firing for a time that has not come by the backend's clock changes nothing", needs: scheduleNeeds, run: futureChangesNothing},
	{id: "TIME-1", title: "the time through which a schedule is dealt with does not go back", needs: scheduleNeeds, run: throughStays},
	{id: "TIME-1", title: "messages that do not all fit are not sent, and the schedule stays",
		config: always(driver.Config{MaxMessages: 3}), needs: scheduleNeeds, run: firingFitsOrNot},
	{id: "TIME-1", title: "the latest runs are kept", needs: scheduleNeeds, run: latestRunsAreKept},
	{id: "TIME-1", title: "a schedule that was removed and made again has another revision", needs: scheduleNeeds, run: revisionsAreNotReused},
	{id: "TIME-1", title: "schedules are listed by name, and found by name", needs: scheduleNeeds, run: schedulesAreListed},
	{id: "TIME-1", title: "definitions are kept as they are", needs: scheduleNeeds, run: definitionsAreKept},
	{id: "TIME-1", title: "wrong firings are refused and change nothing", needs: scheduleNeeds, run: wrongFiringsAreRefused},
	{id: "TIME-1", title: "a queue has a limit of schedules", needs: scheduleNeeds, run: schedulesAreLimited, repeats: true},
	{id: "TIME-1", title: "a firing wakes a receive that waits", needs: scheduleNeeds, run: firingWakes},
	{id: "TIME-1", title: "schedules stay when a queue is purged", needs: scheduleNeeds, run: purgeKeepsSchedules},
	{id: "TIME-1", title: "schedules are deleted with their queue", needs: []need{needSchedules, needAdmin}, run: deletingRemovesSchedules},
	{id: "TIME-1", title: "schedules of several shards are found", config: always(driver.Config{Shards: 4}), needs: scheduleNeeds, run: shardsHaveSchedules},
	{id: "TIME-1", title: "queues that have schedules are listed", config: always(driver.Config{Shards: 4}),
		needs: []need{needSchedules, needAdmin, needScheduleLister}, run: scheduledQueuesAreListed},
	{id: "TIME-1", title: "messages of schedules are in order in a queue with strict groups", config: strict, needs: scheduleNeeds, run: strictFirings},
}

// schedule makes a schedule.
func (e *env) schedule(q driver.Queue, name string) driver.Schedule {
	e.t.Helper()
	return e.fired(q, driver.Firing{Name: name, Definition: []byte("definition of " + name)})
}

// fired fires, and expects that it is done.
func (e *env) fired(q driver.Queue, f driver.Firing) driver.Schedule {
	e.t.Helper()
	now, done, err := q.Fire(e.ctx(), f)
	e.ok(err, "fire")
	if !done || (now.Revision == f.Revision && !f.Remove) {
		e.failf("a firing with revision %d: done %v, revision %d afterwards", f.Revision, done, now.Revision)
	}
	return now
}

// expectUndone fires, and expects that nothing changes.
func (e *env) expectUndone(q driver.Queue, f driver.Firing, before driver.Schedule, why string) {
	e.t.Helper()
	now, done, err := q.Fire(e.ctx(), f)
	e.ok(err, "fire %s", why)
	if done {
		e.failf("a firing %s is done", why)
	}
	e.expectSchedule(now, before)
	if before.Revision != 0 {
		e.expectSchedule(e.findSchedule(q, f.Name), before)
	}
}

func (e *env) expectSchedule(got, want driver.Schedule) {
	e.t.Helper()
	if got.Name != want.Name || !bytes.Equal(got.Definition, want.Definition) || got.Revision != want.Revision ||
		!got.Through.Equal(want.Through) || !slices.Equal(got.Runs, want.Runs) || got.Now.Before(want.Now) {
		e.failf("got the schedule %+v, want %+v", got, want)
	}
}

// findSchedule returns the only schedule of this name.
func (e *env) findSchedule(q driver.Queue, name string) (found driver.Schedule) {
	e.t.Helper()
	n := 0
	for s, err := range q.Schedules(e.ctx(), name) {
		e.ok(err, "find a schedule")
		found = s
		n++
	}
	if n != 1 {
		e.failf("found %d schedules called %q, want 1", n, name)
	}
	return found
}

// expectSchedules checks the names of all schedules.
func (e *env) expectSchedules(q driver.Queue, want ...string) {
	e.t.Helper()
	var names []string
	for s, err := range q.Schedules(e.ctx(), "") {
		e.ok(err, "list schedules")
		names = append(names, s.Name)
	}
	if !slices.Equal(names, want) {
		e.failf("the schedules are %q, want %q", names, want)
	}
}

// due returns messages for a due time.
func due(at time.Time, bodies ...string) (messages []driver.DueMessage) {
	for _, body := range bodies {
		messages = append(messages, driver.DueMessage{Due: at, Outgoing: driver.Outgoing{Body: []byte(body)}})
	}
	return messages
}

func firingDoesBoth(e *env, q driver.Queue) {
	before := time.Now().Add(-time.Minute) // the clock of a server may be another one
	s := e.schedule(q, "nightly")
	if s.Name != "nightly" || string(s.Definition) != "definition of nightly" || s.Revision == 0 || s.Revision >= 1<<53 ||
		!s.Through.IsZero() || len(s.Runs) > 0 || s.Now.Before(before) || s.Now.Location() != time.UTC {
		e.failf("a new schedule is %+v", s)
	}
	e.expectNothing(q)
	at := s.Now.Add(-time.Second)
	messages := due(at, "a", "b")
	messages[0].Attributes = map[string]string{"colour": "red"}
	messages[1].Due = time.Time{}
	now := e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Through: at, Messages: messages})
	if string(now.Definition) != "definition of nightly" || !now.Through.Equal(at) || len(now.Runs) != 2 {
		e.failf("after a firing through %v the schedule is %+v", at, now)
	}
	e.expectSchedule(e.findSchedule(q, "nightly"), now)
	got := e.expectNext(q, "a", "b")
	for i, run := range now.Runs {
		if run.MessageID != got[i].ID || !run.Due.Equal(messages[i].Due) || run.At.Before(s.Now) || run.At.After(now.Now) {
			e.failf("run %d is %+v of message %s, want due %v", i, run, got[i].ID, messages[i].Due)
		}
	}
	if got[0].Attributes["colour"] != "red" {
		e.failf("the attributes are %v", got[0].Attributes)
	}
}

func firingIsDoneOnce(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	f := driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "a")}
	now := e.fired(q, f)
	e.expectUndone(e.open(queueName), f, now, "that was done before")
	f.Messages = due(s.Now, "b")
	e.expectUndone(q, f, now, "of another process for the same time")
	e.expectNext(q, "a")
	e.expectNothing(q)
}

func oneOfManyFiringsIsDone(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	for range e.rounds(20, 5) {
		var dones atomic.Int32
		e.parallel(8, func(i int) error {
			_, done, err := q.Fire(e.ctx(), driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "a")})
			if done {
				dones.Add(1)
			}
			return err
		})
		if dones.Load() != 1 {
			e.failf("%d of 8 firings are done, want 1", dones.Load())
		}
		e.ack(q, e.expectNext(q, "a")...)
		e.expectNothing(q)
		s = e.findSchedule(q, "nightly")
	}
}

func otherRevisionChangesNothing(e *env, q driver.Queue) {
	none := driver.Schedule{Name: "nightly"}
	e.expectUndone(q, driver.Firing{Name: "nightly", Revision: 1, Messages: due(time.Time{}, "a")}, none, "of a schedule that does not exist")
	e.expectUndone(q, driver.Firing{Name: "nightly", Revision: 1, Definition: []byte("x")}, none, "of a schedule that does not exist")
	e.expectUndone(q, driver.Firing{Name: "nightly", Revision: 1, Remove: true}, none, "of a schedule that does not exist")
	s := e.schedule(q, "nightly")
	later := e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Definition: []byte("x")})
	for why, f := range map[string]driver.Firing{
		"with an earlier revision":                    {Revision: s.Revision, Messages: due(time.Time{}, "a")},
		"with a definition and an earlier revision":   {Revision: s.Revision, Definition: []byte("y")},
		"that removes, with an earlier revision":      {Revision: s.Revision, Remove: true},
		"with an earlier revision, for a time":        {Revision: s.Revision, Through: s.Now},
		"of a schedule that is new, but there is one": {Definition: []byte("z"), Messages: due(time.Time{}, "a")},
	} {
		f.Name = "nightly"
		e.expectUndone(q, f, later, why)
	}
	e.expectNothing(q)
}

func futureChangesNothing(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	f := driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now.Add(time.Hour), Messages: due(s.Now.Add(time.Hour), "a")}
	e.expectUndone(q, f, s, "for a time in an hour")
	e.expectNothing(q)
	f.Through = s.Now
	now := e.fired(q, f)
	f = driver.Firing{Name: "nightly", Revision: now.Revision, Definition: []byte("x"), Through: now.Now.Add(30 * time.Minute)}
	e.expectUndone(q, f, now, "for a time in half an hour")
	e.expectNext(q, "a")
}

func throughStays(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	at := s.Now.Add(-time.Minute)
	s = e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Through: at})
	for _, through := range []time.Time{{}, at.Add(-time.Hour)} {
		s = e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Through: through, Messages: due(time.Time{}, "a")})
		if !s.Through.Equal(at) {
			e.failf("after a firing through %v, the schedule is dealt with through %v, want %v", through, s.Through, at)
		}
	}
	e.expectNext(q, "a", "a")
}

func firingFitsOrNot(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	e.send(q, "first")
	_, _, err := q.Fire(e.ctx(), driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "a", "b", "c")})
	e.expectFull(err, "a firing of three messages with room for two")
	e.expectSchedule(e.findSchedule(q, "nightly"), s)
	e.expectNext(q, "first")
	e.expectNothing(q)
	e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "a", "b")})
	s = e.findSchedule(q, "nightly")
	e.expectNext(q, "a", "b")
	e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Definition: []byte("x")}) // needs no room
}

func latestRunsAreKept(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	var ids []string
	for i, n := range []int{4, driver.MaxRuns, 1, 3} {
		bodies := numbered(fmt.Sprintf("%d-", i), n)
		s = e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, bodies...)})
		for _, d := range e.expectNext(q, bodies...) {
			ids = append(ids, d.ID)
		}
		var kept []string
		for _, run := range s.Runs {
			kept = append(kept, run.MessageID)
		}
		if want := ids[max(0, len(ids)-driver.MaxRuns):]; !slices.Equal(kept, want) {
			e.failf("the runs are %q, want %q", kept, want)
		}
	}
	e.expectSchedule(e.findSchedule(q, "nightly"), s)
}

func revisionsAreNotReused(e *env, q driver.Queue) {
	first := e.schedule(q, "nightly")
	gone := e.fired(q, driver.Firing{Name: "nightly", Revision: first.Revision, Remove: true})
	if gone.Revision != 0 {
		e.failf("a schedule that was removed is %+v", gone)
	}
	e.expectSchedules(q)
	second := e.schedule(q, "nightly")
	e.expectUndone(q, driver.Firing{Name: "nightly", Revision: first.Revision, Messages: due(time.Time{}, "a")}, second,
		"with the revision of a schedule that was removed")
	e.expectNothing(q)
}

func schedulesAreListed(e *env, q driver.Queue) {
	e.expectSchedules(q)
	names := []string{"b", "a", "c 1", "ü", "10", "9"}
	for _, name := range names {
		e.schedule(q, name)
	}
	slices.Sort(names)
	e.expectSchedules(e.open(queueName), names...)
	a := e.findSchedule(q, "a")
	if string(a.Definition) != "definition of a" || a.Now.IsZero() {
		e.failf("the schedule is %+v", a)
	}
	for s, err := range q.Schedules(e.ctx(), "none") {
		e.failf("found %+v, error %v", s, err)
	}
	e.fired(q, driver.Firing{Name: "a", Revision: a.Revision, Remove: true})
	e.expectSchedules(q, names[:2:2][0], names[1], "b", "c 1", "ü")
	e.expectSchedules(e.open("another"))
}

func definitionsAreKept(e *env, q driver.Queue) {
	definition := bytes.Repeat([]byte{0, 255, '"', '\n', 'x'}, driver.MaxDefinitionBytes/5)
	given := bytes.Clone(definition)
	s := e.fired(q, driver.Firing{Name: "nightly", Definition: given})
	clear(given) // it is the caller's again
	if !bytes.Equal(s.Definition, definition) || !bytes.Equal(e.findSchedule(q, "nightly").Definition, definition) {
		e.failf("a definition of %d bytes is another one", len(definition))
	}
	s = e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Definition: []byte{}})
	if len(s.Definition) != 0 {
		e.failf("an empty definition is %q", s.Definition)
	}
}

func wrongFiringsAreRefused(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	message := func(change func(*driver.DueMessage)) driver.Firing {
		messages := due(time.Time{}, "a")
		change(&messages[0])
		return driver.Firing{Name: "nightly", Revision: s.Revision, Messages: messages}
	}
	for what, c := range map[string]struct {
		code   driver.Code
		limit  string
		firing driver.Firing
	}{
		"no name":            {driver.ErrInvalid, "128", driver.Firing{Definition: []byte("x")}},
		"a long name":        {driver.ErrInvalid, "128", driver.Firing{Name: strings.Repeat("x", 129), Definition: []byte("x")}},
		"a name with a line": {driver.ErrInvalid, "", driver.Firing{Name: "a\nb", Definition: []byte("x")}},
		"no definition":      {driver.ErrInvalid, "", driver.Firing{Name: "new"}},
		"a long definition":  {driver.ErrTooLarge, "262144", driver.Firing{Name: "new", Definition: make([]byte, driver.MaxDefinitionBytes+1)}},
		"removing and changing": {driver.ErrInvalid, "", driver.Firing{
			Name: "nightly", Revision: s.Revision, Remove: true, Definition: []byte("x"),
		}},
		"a time with microseconds": {driver.ErrInvalid, "millisecond", driver.Firing{
			Name: "nightly", Revision: s.Revision, Through: s.Now.Add(-time.Microsecond),
		}},
		"many messages": {driver.ErrInvalid, "10", driver.Firing{
			Name: "nightly", Revision: s.Revision, Messages: due(time.Time{}, numbered("m", driver.MaxRuns+1)...),
		}},
		"a delay":     {driver.ErrInvalid, "", message(func(m *driver.DueMessage) { m.Delay = time.Second })},
		"a due time":  {driver.ErrInvalid, "", message(func(m *driver.DueMessage) { m.DeliverAt = time.Now() })},
		"a dedup key": {driver.ErrInvalid, "", message(func(m *driver.DueMessage) { m.DedupKey = "key" })},
		"a group":     {driver.ErrInvalid, "", message(func(m *driver.DueMessage) { m.Group = "g" })},
		"an attribute without a key": {driver.ErrInvalid, "", message(func(m *driver.DueMessage) {
			m.Attributes = map[string]string{"": "x"}
		})},
	} {
		_, done, err := q.Fire(e.ctx(), c.firing)
		e.expectInvalid(err, c.code, c.limit, "a firing with "+what)
		if done {
			e.failf("a firing with %s is done", what)
		}
	}
	e.expectSchedule(e.findSchedule(q, "nightly"), s)
	e.expectSchedules(q, "nightly")
	e.expectNothing(q)
}

func schedulesAreLimited(e *env, q driver.Queue) {
	var last driver.Schedule
	for i := range driver.MaxSchedules {
		last = e.schedule(q, fmt.Sprint(i))
	}
	one := driver.Firing{Name: "one more", Definition: []byte("x")}
	_, _, err := q.Fire(e.ctx(), one)
	e.expectCode(err, driver.ErrFull, "a schedule over the limit")
	e.fired(q, driver.Firing{Name: last.Name, Revision: last.Revision, Messages: due(time.Time{}, "a")})
	last = e.findSchedule(q, last.Name)
	e.fired(q, driver.Firing{Name: last.Name, Revision: last.Revision, Remove: true})
	e.fired(q, one)
	n := 0
	for _, err := range q.Schedules(e.ctx(), "") {
		e.ok(err, "list schedules")
		n++
	}
	if n != driver.MaxSchedules {
		e.failf("there are %d schedules, want %d", n, driver.MaxSchedules)
	}
}

func firingWakes(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "a")})
	e.expectHandedTo(waiting, "a", "a firing")
}

func purgeKeepsSchedules(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	s = e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "a")})
	_, err := q.Purge(e.ctx())
	e.ok(err, "purge")
	e.expectNothing(q)
	e.expectSchedule(e.findSchedule(q, "nightly"), s)
}

func deletingRemovesSchedules(e *env, q driver.Queue) {
	s := e.schedule(q, "nightly")
	e.ok(e.opener.(driver.Admin).DeleteQueue(e.ctx(), queueName), "delete")
	q = e.open(queueName)
	e.expectSchedules(q)
	e.expectUndone(q, driver.Firing{Name: "nightly", Revision: s.Revision, Messages: due(time.Time{}, "a")},
		driver.Schedule{Name: "nightly"}, "of a schedule of a queue that was deleted")
	e.expectNothing(q)
}

func scheduledQueuesAreListed(e *env, q driver.Queue) {
	const without, other = "without-schedules", "other-schedules"
	e.open(without)
	e.expectScheduledQueues()
	var revisions []uint64
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		revisions = append(revisions, e.schedule(q, name).Revision)
	}
	e.schedule(e.open(other), "a")
	e.expectScheduledQueues(driver.ScheduledQueue{Name: other, Schedules: 1}, driver.ScheduledQueue{Name: queueName, Schedules: 5})
	e.fired(q, driver.Firing{Name: "a", Revision: revisions[0], Remove: true})
	e.ok(e.opener.(driver.Admin).DeleteQueue(e.ctx(), other), "delete")
	e.expectScheduledQueues(driver.ScheduledQueue{Name: queueName, Schedules: 4})
}

// expectScheduledQueues checks which queues have how many schedules.
func (e *env) expectScheduledQueues(want ...driver.ScheduledQueue) {
	e.t.Helper()
	var got []driver.ScheduledQueue
	for q, err := range e.opener.(driver.ScheduleLister).ScheduledQueues(e.ctx()) {
		e.ok(err, "list queues with schedules")
		got = append(got, q)
	}
	slices.SortFunc(want, func(a, b driver.ScheduledQueue) int { return strings.Compare(a.Name, b.Name) })
	if !slices.Equal(got, want) {
		e.failf("the queues with schedules are %v, want %v", got, want)
	}
}

func shardsHaveSchedules(e *env, q driver.Queue) {
	names := numbered("s", 20)
	slices.Sort(names)
	for _, name := range names {
		s := e.schedule(q, name)
		e.fired(q, driver.Firing{Name: name, Revision: s.Revision, Through: s.Now, Messages: due(s.Now, name)})
	}
	e.expectSchedules(q, names...)
	got := bodies(e.receive(q, len(names)))
	slices.Sort(got)
	if !slices.Equal(got, names) {
		e.failf("got %q, want %q", got, names)
	}
	for _, name := range names {
		if s := e.findSchedule(q, name); len(s.Runs) != 1 {
			e.failf("schedule %q has %d runs, want 1", name, len(s.Runs))
		}
	}
}

func strictFirings(e *env, q driver.Queue) {
	for _, name := range []string{"a", "b", "c"} {
		s := e.schedule(q, name)
		e.fired(q, driver.Firing{Name: name, Revision: s.Revision, Through: s.Now, Messages: due(s.Now, name+"1", name+"2")})
	}
	e.expectNext(q, "a1", "a2", "b1", "b2", "c1", "c2")
}

func schedulesSurvive(e *env, q driver.Queue, how Crash) {
	s := e.schedule(q, "nightly")
	gone := e.schedule(q, "gone")
	e.fired(q, driver.Firing{Name: "gone", Revision: gone.Revision, Remove: true})
	f := driver.Firing{Name: "nightly", Revision: s.Revision, Through: s.Now, Messages: due(s.Now, "a", "b")}
	s = e.fired(q, f)
	q = e.restart(how)
	e.expectSchedules(q, "nightly")
	s.Now = time.Time{}
	e.expectUndone(q, f, s, "that was done before "+how.String())
	e.expectNext(q, "a", "b")
	e.expectNothing(q)
	e.fired(q, driver.Firing{Name: "nightly", Revision: s.Revision, Messages: due(time.Time{}, "c")})
	e.expectNext(q, "c")
}
