package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// The cases about moving groups, and about moves while other operations run.

func shardedMove(e *env, q driver.Queue) {
	target := e.configure(targetQueue, driver.Config{Shards: 4})
	groups := []string{"a", "b", "c", "d", "e"}
	want := make(map[string][]string)
	for i := range 30 {
		group := groups[i%len(groups)]
		body := fmt.Sprintf("%s %d", group, i)
		e.sendTo(q, group, body)
		want[group] = append(want[group], body)
	}
	e.move(q, targetQueue, 7, 7)
	e.expectStats(q, driver.Stats{Ready: 23})
	e.move(q, targetQueue, 0, 23)
	e.expectEmpty(q)
	e.expectStats(target, driver.Stats{Ready: 30})
	got := make(map[string][]string)
	for _, d := range e.receive(target, 30) {
		got[d.Group] = append(got[d.Group], string(d.Body))
		e.ack(target, d)
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		e.failf("groups after a move: got %q, want %q", got, want)
	}
}

// collectAll receives all ready messages of queues, and checks that each wanted message is
// there once.
func (e *env) collectAll(want []string, queues ...driver.Queue) {
	e.t.Helper()
	var got []string
	for _, q := range queues {
		for {
			batch := e.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: e.hold})
			if len(batch) == 0 {
				break
			}
			got = append(got, bodies(batch)...)
			e.ack(q, batch...)
		}
		e.expectEmpty(q)
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		e.failf("%d messages were sent, and %d arrived: got %q, want %q", len(want), len(got), got, want)
	}
}

func movesCross(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	want := numbered("m", 40)
	e.send(q, want[:20]...)
	e.send(target, want[20:]...)
	rounds := e.rounds(60, 15)
	e.parallel(6, func(i int) error {
		from, to := q, targetQueue
		if i%2 == 1 {
			from, to = target, queueName
		}
		for range rounds {
			if _, err := from.Move(e.ctx(), to, 1+i); err != nil {
				return err
			}
		}
		return nil
	})
	e.collectAll(want, q, target)
}

// movesCrossDeaths moves messages back to their source while others die and move the other way.
func movesCrossDeaths(e *env, q driver.Queue) {
	letters := e.open(deadLetterQueue)
	want := numbered("m", 30)
	e.send(q, want...)
	rounds := e.rounds(60, 15)
	e.parallel(4, func(i int) error {
		for range rounds {
			if i%2 == 1 {
				if _, err := letters.Move(e.ctx(), "", 5); err != nil {
					return err
				}
				continue
			}
			got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 3, Visibility: e.hold})
			if err != nil {
				return err
			}
			for _, d := range got {
				if err := tryNack(e, q, d, 0, "failure"); err != nil {
					return err
				}
			}
		}
		return nil
	})
	e.collectAll(want, q, letters)
}

func movedOrDelivered(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	want := numbered("m", 60)
	e.send(q, want...)
	delivered := make([][]string, 4)
	e.parallel(6, func(i int) error {
		if i >= len(delivered) {
			for range 10 {
				if _, err := q.Move(e.ctx(), targetQueue, 3); err != nil {
					return err
				}
			}
			return nil
		}
		for {
			got, err := q.Receive(e.ctx(), driver.ReceiveRequest{Max: 2, Visibility: e.hold})
			if err != nil || len(got) == 0 {
				return err
			}
			delivered[i] = append(delivered[i], bodies(got)...)
			if err := q.Ack(e.ctx(), receipts(got)); err != nil {
				return errors.Join(fmt.Errorf("ack of %q", bodies(got)), err)
			}
		}
	})
	got := slices.Concat(delivered...)
	e.expectEmpty(q)
	for _, d := range e.receive(target, len(want)-len(got)) {
		got = append(got, string(d.Body))
	}
	e.expectNothing(target)
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		e.failf("delivered or moved: got %q, want %q", got, want)
	}
}
