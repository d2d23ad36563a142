package drivertest

import (
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// middleQueue gets the dead letters of the queue under test and has a target of its own.
const middleQueue = "middle"

// ownTarget is a queue whose dead letters go back to its own tail.
var ownTarget = always(driver.Config{MaxDeliveries: 2, DeadLetterTo: queueName})

var deadLetterCircleCases = []testCase{
	{id: "DLQ-8", title: "a queue can be its own target", config: ownTarget, run: ownTargetStartsAgain},
	{id: "DLQ-8", title: "a message goes to the tail of its own queue", config: ownTarget, needs: []need{needFIFO}, run: ownTargetGoesToTail},
	{
		id: "DLQ-8", title: "a message goes back to its own queue by the clock alone",
		config: ownTarget, run: ownTargetNeedsNoTouch,
	},
	{id: "DLQ-8", title: "a target can have a target of its own", config: chainStart, run: chainCountsOn},
	{id: "DLQ-8", title: "two queues can be the target of each other", config: chainStart, run: circleCountsOn},
	{
		id: "DLQ-8", title: "a message that expires in its own target stays as a dead letter",
		config: func(e *env) driver.Config {
			return driver.Config{DeadLetterTo: queueName, RetainReady: driver.Retention{Age: e.tick}}
		}, needs: []need{needDeadLetters}, run: expiredStaysInOwnTarget,
	},
	{
		id: "DLQ-8", title: "messages pushed out of a circle of targets stay as dead letters",
		config: always(driver.Config{DeadLetterTo: middleQueue, RetainReady: driver.Retention{Count: 1}}),
		needs:  []need{needDeadLetters, needFIFO}, run: pushedOutStaysInCircle,
	},
	{
		id: "DLQ-8", title: "16 goroutines on a circle of targets lose nothing and double nothing",
		config: always(driver.Config{MaxDeliveries: 1, DeadLetterTo: middleQueue}), needs: []need{needExactStats}, run: crowdOnCircle,
	},
}

var chainStart = always(driver.Config{MaxDeliveries: 2, DeadLetterTo: middleQueue})

// failDeliveries nacks a message as often as it may be delivered in a queue.
func (e *env) failDeliveries(q driver.Queue, times int) {
	e.t.Helper()
	for i := range times {
		got := e.receive(q, 1)[0]
		if got.Deliveries != i+1 {
			e.failf("delivery %d in this queue: got Deliveries %d; the count restarts at a move", i+1, got.Deliveries)
		}
		e.nack(q, got, 0, "failed")
	}
}

// expectTotal checks the total deliveries of a message that came from source, and ends its
// lease.
func (e *env) expectTotal(q driver.Queue, sent driver.Outgoing, id, source string, earlier int) {
	e.t.Helper()
	got := e.receive(q, 1)[0]
	want := maps.Clone(sent.Attributes)
	want[driver.AttributeDeadReason] = string(driver.ReasonMaxDeliveries)
	want[driver.AttributeDeadSource] = source
	want[driver.AttributeDeadDeliveries] = fmt.Sprint(earlier)
	want[driver.AttributeDeadError] = "failed"
	sent.Attributes = want
	e.expectMessage(got.Message, sent, id, 1)
	if got.TotalDeliveries() != earlier+1 {
		e.failf("message delivered %d times: got TotalDeliveries %d", earlier+1, got.TotalDeliveries())
	}
	e.extend(q, got, 0)
}

func ownTargetStartsAgain(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	e.failDeliveries(q, 2)
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectTotal(q, msg, id, queueName, 2)
	e.nack(q, e.receive(q, 1)[0], 0, "failed") // the second delivery since the move
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectTotal(q, msg, id, queueName, 4)
}

func ownTargetGoesToTail(e *env, q driver.Queue) {
	last := e.secondDelivery(q, "a")
	e.send(q, "b")
	e.expire(q, last) // an expired message keeps its place, but not at the limit
	e.expectNext(q, "b", "a")
}

func ownTargetNeedsNoTouch(e *env, q driver.Queue) {
	last := e.secondDelivery(q, "a")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	start := time.Now()
	e.extend(q, last, e.tick)
	e.expectWokenAt(waiting, start.Add(e.tick), "a", "the death of a message by the clock")
}

func chainCountsOn(e *env, q driver.Queue) {
	middle := e.configure(middleQueue, driver.Config{MaxDeliveries: 3, DeadLetterTo: deadLetterQueue})
	last := e.open(deadLetterQueue)
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	e.failDeliveries(q, 2)
	e.failDeliveries(middle, 3)
	e.expectStats(q, driver.Stats{})
	e.expectStats(middle, driver.Stats{})
	e.expectTotal(last, msg, id, middleQueue, 5)
	e.expectStats(last, driver.Stats{Ready: 1})
}

func circleCountsOn(e *env, q driver.Queue) {
	middle := e.configure(middleQueue, driver.Config{MaxDeliveries: 1, DeadLetterTo: queueName})
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	e.failDeliveries(q, 2)
	e.failDeliveries(middle, 1)
	e.expectStats(middle, driver.Stats{})
	e.expectTotal(q, msg, id, middleQueue, 3)
	e.nack(q, e.receive(q, 1)[0], 0, "failed")
	e.expectStats(q, driver.Stats{})
	e.expectTotal(middle, msg, id, queueName, 5)
}

// crowdOnCircle lets messages die in queues that are targets of each other or of themselves,
// from many goroutines, while others peek and move.
func crowdOnCircle(e *env, q driver.Queue) {
	const goroutines, rounds, messages = 16, 40, 24
	queues := []driver.Queue{
		q,
		e.configure(middleQueue, driver.Config{MaxDeliveries: 1, DeadLetterTo: "own"}),
		e.configure("own", driver.Config{MaxDeliveries: 1, DeadLetterTo: "own"}),
	}
	e.configure(middleQueue, driver.Config{MaxDeliveries: 1, DeadLetterTo: queueName})
	for i := range messages {
		e.send(queues[i%len(queues)], fmt.Sprint(i))
	}
	e.parallel(goroutines, func(i int) error {
		for n := range rounds {
			here := queues[(i+n)%len(queues)]
			got, err := here.Receive(e.ctx(), driver.ReceiveRequest{Max: 1 + n%3, Visibility: e.hold})
			if err != nil {
				return err
			}
			var nacks []driver.Nack
			for _, d := range got {
				nacks = append(nacks, driver.Nack{Receipt: d.Receipt})
			}
			if err := here.Nack(e.ctx(), nacks); err != nil {
				return err
			}
			if _, err := here.Stats(e.ctx()); err != nil {
				return err
			}
			if here.Traits().Move && n%8 == 0 {
				to := []string{middleQueue, queueName, queueName}[(i+n)%len(queues)]
				if _, err := here.Move(e.ctx(), to, 2); err != nil {
					return err
				}
			}
		}
		return nil
	})
	e.expectAllOnce(queues, messages)
}

// expectAllOnce checks that messages 0 to n-1 are ready, each once, in any of the queues.
func (e *env) expectAllOnce(queues []driver.Queue, n int) {
	e.t.Helper()
	seen := make(map[string]int)
	for _, q := range queues {
		stats, err := q.Stats(e.ctx())
		e.ok(err, "stats")
		if stats.Ready == 0 {
			continue
		}
		for _, d := range e.receive(q, stats.Ready) {
			seen[string(d.Body)]++
		}
	}
	for i := range n {
		if times := seen[fmt.Sprint(i)]; times != 1 {
			e.failf("message %d is there %d times", i, times)
		}
	}
}

func expiredStaysInOwnTarget(e *env, q driver.Queue) {
	e.send(q, "a")
	e.sleep(e.tick)
	e.expectDead(q, "a")
	e.expectStats(q, driver.Stats{Dead: 1})
}

func pushedOutStaysInCircle(e *env, q driver.Queue) {
	middle := e.configure(middleQueue, driver.Config{DeadLetterTo: queueName, RetainReady: driver.Retention{Count: 1}})
	e.send(middle, "m1", "m2")
	e.send(q, "a", "b", "c")
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 2})
	e.expectStats(middle, driver.Stats{Ready: 1, Dead: 1})
	e.expectNext(q, "c")
	e.expectNext(middle, "m2")
}
