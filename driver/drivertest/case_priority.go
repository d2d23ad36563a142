package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var priorityNeeds = []need{needPriorities}

// priorityCases are the cases about priorities that stories cannot express. The others are in
// stories/priority.txt.
var priorityCases = []testCase{
	{id: "FLOW-1", title: "a priority outside 0…9 is refused", needs: priorityNeeds, run: prioritiesHaveALimit},
	{id: "FLOW-1", title: "priorities and strict groups exclude each other", needs: []need{needPriorities, needAdmin, needGroups}, run: groupsHaveNoPriorities},
	{id: "FLOW-1", title: "a new queue ages by one level a minute, and ageing can be turned off", needs: []need{needPriorities, needAdmin}, run: agingHasADefault},
	{id: "FLOW-1", title: "hundreds of messages are delivered by priority, and then by place", needs: priorityNeeds, run: manyPriorities},
	{id: "FLOW-1", title: "a peek, a delivery and a dead letter show the priority", needs: []need{needPriorities, needPeek, needDeadLetters}, run: priorityIsShown},
	{
		id: "FLOW-1", title: "a low priority is delivered under a flood of high ones",
		config: func(e *env) driver.Config { return driver.Config{PriorityAging: e.tick()} }, needs: priorityNeeds, run: lowPriorityIsNotStarved,
	},
}

func prioritiesHaveALimit(e *env, q driver.Queue) {
	for _, priority := range []int{-1, driver.MaxPriority + 1, 256, -1 << 31} {
		e.expectBadSend(q, driver.Outgoing{Priority: priority}, driver.ErrInvalid, driver.MaxPriority, "priority")
	}
	e.sendOne(q, driver.Outgoing{Body: []byte("highest"), Priority: driver.MaxPriority})
	e.expectNext(q, "highest")
}

func groupsHaveNoPriorities(e *env, _ driver.Queue) {
	admin := e.opener.(driver.Admin)
	for name, config := range map[string]driver.Config{"strict": {StrictGroups: true}, "fair": {FairGroups: true}} {
		err := admin.ConfigureQueue(e.ctx(), name, config)
		if driver.At(err, 0) != nil {
			e.expectCode(err, driver.ErrUnsupported, "configure "+name+" groups")
			continue
		}
		q := e.open(name)
		if q.Traits().Priorities {
			e.failf("a queue with %s groups has the trait Priorities", name)
		}
		_, err = q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a"), Group: "g", Priority: 1}})
		e.expectInvalid(err, driver.ErrUnsupported, "", "send with a priority to a queue with "+name+" groups")
		e.expectEmpty(q)
		config.PriorityAging = time.Minute
		e.expectInvalid(admin.ConfigureQueue(e.ctx(), name+"-aging", config), driver.ErrInvalid, "", "configure "+name+" groups with ageing")
	}
}

func agingHasADefault(e *env, _ driver.Queue) {
	admin := e.opener.(driver.Admin)
	for _, set := range []struct{ given, want time.Duration }{
		{0, driver.DefaultPriorityAging}, {driver.Off, driver.Off}, {0, driver.Off}, {5 * time.Second, 5 * time.Second}, {0, 5 * time.Second},
	} {
		e.ok(admin.ConfigureQueue(e.ctx(), "ageing", driver.Config{PriorityAging: set.given}), "configure")
		config, err := admin.QueueConfig(e.ctx(), "ageing")
		e.ok(err, "read the configuration")
		if config.PriorityAging != set.want {
			e.failf("PriorityAging after %v was given: got %v, want %v", set.given, config.PriorityAging, set.want)
		}
	}
}

func manyPriorities(e *env, q driver.Queue) {
	const n = 400
	var want []string
	msgs := make([]driver.Outgoing, 0, n)
	for i := range n {
		msgs = append(msgs, driver.Outgoing{Body: []byte(fmt.Sprint(i)), Priority: i * 7 % (driver.MaxPriority + 1)})
	}
	for priority := driver.MaxPriority; priority >= 0; priority-- {
		for i := range msgs {
			if msgs[i].Priority == priority {
				want = append(want, string(msgs[i].Body))
			}
		}
	}
	for batch := range slices.Chunk(msgs, q.Traits().MaxBatch) {
		_, err := q.Send(e.ctx(), batch)
		e.ok(err, "send")
	}
	var got []string
	for len(got) < n {
		batch := e.receive(q, 8)
		if len(batch) == 0 {
			break
		}
		for i := range batch {
			got = append(got, string(batch[i].Body))
		}
	}
	if !slices.Equal(got, want) {
		e.failf("got %v, want %v", got, want)
	}
}

func priorityIsShown(e *env, q driver.Queue) {
	e.sendOne(q, driver.Outgoing{Body: []byte("a"), Priority: 4})
	for peeked, err := range q.Peek(e.ctx(), driver.Query{}) {
		e.ok(err, "peek")
		if peeked.Priority != 4 {
			e.failf("peek: got priority %d, want 4", peeked.Priority)
		}
	}
	d := e.expectNext(q, "a")[0]
	if d.Priority != 4 {
		e.failf("delivery: got priority %d, want 4", d.Priority)
	}
	e.ok(q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}), "dead-letter")
	if letters := e.dead(q); len(letters) != 1 || letters[0].Priority != 4 {
		e.failf("dead letters: got %+v, want one of priority 4", letters)
	}
}

// lowPriorityIsNotStarved sends messages of the highest priority as fast as they are received, for
// ten times the ageing.
func lowPriorityIsNotStarved(e *env, q driver.Queue) {
	before := time.Now()
	e.sendOne(q, driver.Outgoing{Body: []byte("low")})
	after := time.Now()
	for {
		late := time.Since(after) >= 9*e.tick()+e.slack
		e.sendOne(q, driver.Outgoing{Body: []byte("high"), Priority: driver.MaxPriority})
		d := e.receive(q, 1)[0]
		e.ack(q, d)
		switch waited := time.Since(before); {
		case string(d.Body) == "low" && waited < 9*e.tick()-e.slack:
			e.failf("the message of priority 0 came after %v, before one of priority 9", waited)
		case string(d.Body) == "low":
			return
		case late:
			e.failf("the message of priority 0 has not come after %v", waited)
		}
		e.sleep(e.tick() / 4)
	}
}
