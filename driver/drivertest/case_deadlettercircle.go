package drivertest

import (
	"fmt"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// middleQueue takes the dead letters of the queue under test and has a target itself.
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
		config: func(s *session) driver.Config {
			return driver.Config{DeadLetterTo: queueName, RetainReady: driver.Retention{Age: s.tick}}
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

// failDeliveries lets a message fail as often as it may be delivered in a queue.
func (s *session) failDeliveries(q driver.Queue, times int) {
	s.t.Helper()
	for i := range times {
		got := s.receive(q, 1)[0]
		if got.Deliveries != i+1 {
			s.failf("delivery %d in this queue says %d; the count that is limited starts again at a move", i+1, got.Deliveries)
		}
		s.nack(q, got, 0, "failed")
	}
}

// expectTotal checks that a message that came from source says how often it was
// delivered before, and gives it back as it was.
func (s *session) expectTotal(q driver.Queue, sent driver.Outgoing, id, source string, earlier int) {
	s.t.Helper()
	got := s.receive(q, 1)[0]
	want := maps.Clone(sent.Attributes)
	want[driver.AttributeDeadReason] = string(driver.ReasonMaxDeliveries)
	want[driver.AttributeDeadSource] = source
	want[driver.AttributeDeadDeliveries] = fmt.Sprint(earlier)
	want[driver.AttributeDeadError] = "failed"
	sent.Attributes = want
	s.expectMessage(got.Message, sent, id, 1)
	if got.TotalDeliveries() != earlier+1 {
		s.failf("the message was delivered %d times in all, and says %d", earlier+1, got.TotalDeliveries())
	}
	s.extend(q, got, 0)
}

func ownTargetStartsAgain(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.failDeliveries(q, 2)
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectTotal(q, msg, id, queueName, 2)
	s.nack(q, s.receive(q, 1)[0], 0, "failed") // the second delivery since it came back
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectTotal(q, msg, id, queueName, 4)
}

func ownTargetGoesToTail(s *session, q driver.Queue) {
	last := s.secondDelivery(q, "a")
	s.send(q, "b")
	s.expire(q, last) // a lease that ends keeps its place, but not at the limit
	s.expectNext(q, "b", "a")
}

func ownTargetNeedsNoTouch(s *session, q driver.Queue) {
	last := s.secondDelivery(q, "a")
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	start := time.Now()
	s.extend(q, last, s.tick)
	s.expectWokenAt(waiting, start.Add(s.tick), "a", "the death of a message by the clock")
}

func chainCountsOn(s *session, q driver.Queue) {
	middle := s.configure(middleQueue, driver.Config{MaxDeliveries: 3, DeadLetterTo: graveQueue})
	last := s.open(graveQueue)
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.failDeliveries(q, 2)
	s.failDeliveries(middle, 3)
	s.expectStats(q, driver.Stats{})
	s.expectStats(middle, driver.Stats{})
	s.expectTotal(last, msg, id, middleQueue, 5)
	s.expectStats(last, driver.Stats{Ready: 1})
}

func circleCountsOn(s *session, q driver.Queue) {
	middle := s.configure(middleQueue, driver.Config{MaxDeliveries: 1, DeadLetterTo: queueName})
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.failDeliveries(q, 2)
	s.failDeliveries(middle, 1)
	s.expectStats(middle, driver.Stats{})
	s.expectTotal(q, msg, id, middleQueue, 3)
	s.nack(q, s.receive(q, 1)[0], 0, "failed")
	s.expectStats(q, driver.Stats{})
	s.expectTotal(middle, msg, id, queueName, 5)
}

// crowdOnCircle lets messages die in queues that send them to each other, and to
// themselves, from many goroutines, while others look and move.
func crowdOnCircle(s *session, q driver.Queue) {
	const goroutines, rounds, messages = 16, 40, 24
	queues := []driver.Queue{
		q,
		s.configure(middleQueue, driver.Config{MaxDeliveries: 1, DeadLetterTo: "own"}),
		s.configure("own", driver.Config{MaxDeliveries: 1, DeadLetterTo: "own"}),
	}
	s.configure(middleQueue, driver.Config{MaxDeliveries: 1, DeadLetterTo: queueName})
	for i := range messages {
		s.send(queues[i%len(queues)], fmt.Sprint(i))
	}
	s.parallel(goroutines, func(i int) error {
		for n := range rounds {
			here := queues[(i+n)%len(queues)]
			got, err := here.Receive(s.ctx(), driver.ReceiveRequest{Max: 1 + n%3, Visibility: s.hold})
			if err != nil {
				return err
			}
			var nacks []driver.Nack
			for _, d := range got {
				nacks = append(nacks, driver.Nack{Receipt: d.Receipt})
			}
			if err := here.Nack(s.ctx(), nacks); err != nil {
				return err
			}
			if _, err := here.Stats(s.ctx()); err != nil {
				return err
			}
			if here.Traits().Move && n%8 == 0 {
				to := []string{middleQueue, queueName, queueName}[(i+n)%len(queues)]
				if _, err := here.Move(s.ctx(), to, 2); err != nil {
					return err
				}
			}
		}
		return nil
	})
	s.expectAllOnce(queues, messages)
}

// expectAllOnce checks that messages 0 to n-1 are ready in some of the queues, each once.
func (s *session) expectAllOnce(queues []driver.Queue, n int) {
	s.t.Helper()
	seen := make(map[string]int)
	for _, q := range queues {
		stats, err := q.Stats(s.ctx())
		s.ok(err, "stats")
		if stats.Ready == 0 {
			continue
		}
		for _, d := range s.receive(q, stats.Ready) {
			seen[string(d.Body)]++
		}
	}
	for i := range n {
		if times := seen[fmt.Sprint(i)]; times != 1 {
			s.failf("message %d is there %d times", i, times)
		}
	}
}

func expiredStaysInOwnTarget(s *session, q driver.Queue) {
	s.send(q, "a")
	s.sleep(s.tick)
	s.expectDead(q, "a")
	s.expectStats(q, driver.Stats{Dead: 1})
}

func pushedOutStaysInCircle(s *session, q driver.Queue) {
	middle := s.configure(middleQueue, driver.Config{DeadLetterTo: queueName, RetainReady: driver.Retention{Count: 1}})
	s.send(middle, "m1", "m2")
	s.send(q, "a", "b", "c")
	s.expectStats(q, driver.Stats{Ready: 1, Dead: 2})
	s.expectStats(middle, driver.Stats{Ready: 1, Dead: 1})
	s.expectNext(q, "c")
	s.expectNext(middle, "m2")
}
