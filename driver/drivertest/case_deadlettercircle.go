package drivertest

import (
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
)

// middleQueue gets the dead letters of the queue under test and has a target of its own.
const middleQueue = "middle"

var deadLetterCircleCases = []testCase{
	{
		id: "DLQ-8", title: "16 goroutines on a circle of targets lose nothing and double nothing",
		config: always(driver.Config{MaxDeliveries: 1, DeadLetterTo: middleQueue}), needs: []need{needExactStats}, run: crowdOnCircle, repeats: true,
	},
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
