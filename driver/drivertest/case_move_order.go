package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// This file has the cases about moving groups, and moving while others are at
// work.

// strictGroupsMoveInOrder has a group whose head is in flight, one whose head was
// nacked with a delay, and one that may go.
func strictGroupsMoveInOrder(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{StrictGroups: true})
	s.sendTo(q, "out", "out 1", "out 2")
	held := s.expectAlone(q, "out 1")
	s.sendTo(q, "late", "late 1")
	delay := 8 * s.tick // longer than two moves take on a slow backend
	s.nack(q, s.expectAlone(q, "late 1"), delay, "")
	s.sendTo(q, "late", "late 2")
	s.sendTo(q, "free", "free 1", "free 2")
	s.expectStats(q, driver.Stats{Ready: 4, Delayed: 1, InFlight: 1})
	s.move(q, shelterQueue, 0, 2)
	s.expectStats(q, driver.Stats{Ready: 2, Delayed: 1, InFlight: 1})
	s.ack(q, held)
	s.move(q, shelterQueue, 0, 1)
	s.sleep(delay)
	s.move(q, shelterQueue, 0, 2)
	s.expectEmpty(q)
	s.expectNext(shelter, "free 1", "free 2", "out 2", "late 1", "late 2")
}

func moveToStrictGroups(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{StrictGroups: true})
	s.sendTo(shelter, "g", "g1")
	held := s.expectAlone(shelter, "g1")
	s.sendTo(q, "g", "g2", "g3")
	s.sendTo(q, "h", "h1")
	s.move(q, shelterQueue, 0, 3)
	s.ack(shelter, s.expectAlone(shelter, "h1"))
	s.expectNothing(shelter)
	s.ack(shelter, held)
	s.ack(shelter, s.expectAlone(shelter, "g2"))
	s.ack(shelter, s.expectAlone(shelter, "g3"))
	s.expectEmpty(shelter)
}

func shardedMove(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{Shards: 4})
	groups := []string{"a", "b", "c", "d", "e"}
	want := make(map[string][]string)
	for i := range 30 {
		group := groups[i%len(groups)]
		body := fmt.Sprintf("%s %d", group, i)
		s.sendTo(q, group, body)
		want[group] = append(want[group], body)
	}
	s.move(q, shelterQueue, 7, 7)
	s.expectStats(q, driver.Stats{Ready: 23})
	s.move(q, shelterQueue, 0, 23)
	s.expectEmpty(q)
	s.expectStats(shelter, driver.Stats{Ready: 30})
	got := make(map[string][]string)
	for _, d := range s.receive(shelter, 30) {
		got[d.Group] = append(got[d.Group], string(d.Body))
		s.ack(shelter, d)
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		s.failf("groups after a move: got %q, want %q", got, want)
	}
}

// collectAll receives everything that is ready in queues, and checks that it is
// what was sent, once each.
func (s *session) collectAll(want []string, queues ...driver.Queue) {
	s.t.Helper()
	var got []string
	for _, q := range queues {
		for {
			batch := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold})
			if len(batch) == 0 {
				break
			}
			got = append(got, bodies(batch)...)
			s.ack(q, batch...)
		}
		s.expectEmpty(q)
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		s.failf("%d messages were sent, and %d arrived: got %q, want %q", len(want), len(got), got, want)
	}
}

func movesCross(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	want := numbered("m", 40)
	s.send(q, want[:20]...)
	s.send(shelter, want[20:]...)
	rounds := s.rounds(60, 15)
	s.parallel(6, func(i int) error {
		from, to := q, shelterQueue
		if i%2 == 1 {
			from, to = shelter, queueName
		}
		for range rounds {
			if _, err := from.Move(s.ctx(), to, 1+i); err != nil {
				return err
			}
		}
		return nil
	})
	s.collectAll(want, q, shelter)
}

// movesCrossDeaths sends messages home while others die and come the other way.
func movesCrossDeaths(s *session, q driver.Queue) {
	graves := s.open(graveQueue)
	want := numbered("m", 30)
	s.send(q, want...)
	rounds := s.rounds(60, 15)
	s.parallel(4, func(i int) error {
		for range rounds {
			if i%2 == 1 {
				if _, err := graves.Move(s.ctx(), "", 5); err != nil {
					return err
				}
				continue
			}
			got, err := q.Receive(s.ctx(), driver.ReceiveRequest{Max: 3, Visibility: s.hold})
			if err != nil {
				return err
			}
			for _, d := range got {
				if err := tryNack(s, q, d, 0, "failure"); err != nil {
					return err
				}
			}
		}
		return nil
	})
	s.collectAll(want, q, graves)
}

func movedOrDelivered(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	want := numbered("m", 60)
	s.send(q, want...)
	delivered := make([][]string, 4)
	s.parallel(6, func(i int) error {
		if i >= len(delivered) {
			for range 10 {
				if _, err := q.Move(s.ctx(), shelterQueue, 3); err != nil {
					return err
				}
			}
			return nil
		}
		for {
			got, err := q.Receive(s.ctx(), driver.ReceiveRequest{Max: 2, Visibility: s.hold})
			if err != nil || len(got) == 0 {
				return err
			}
			delivered[i] = append(delivered[i], bodies(got)...)
			if err := q.Ack(s.ctx(), receipts(got)); err != nil {
				return errors.Join(fmt.Errorf("ack of %q", bodies(got)), err)
			}
		}
	})
	got := slices.Concat(delivered...)
	s.expectEmpty(q)
	for _, d := range s.receive(shelter, len(want)-len(got)) {
		got = append(got, string(d.Body))
	}
	s.expectNothing(shelter)
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		s.failf("delivered or moved: got %q, want %q", got, want)
	}
}

func movedSurvives(s *session, q driver.Queue, how Crash) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.send(q, "a", "b", "c")
	s.open(shelterQueue)
	s.move(q, shelterQueue, 3, 3)
	q = s.restart(how)
	s.expectStats(q, driver.Stats{Ready: 1})
	shelter := s.open(shelterQueue)
	s.expectStats(shelter, driver.Stats{Ready: 3})
	s.move(q, shelterQueue, 0, 1)
	got := s.receive(shelter, 4)
	for i, d := range got {
		if d.ID == id {
			s.expectMessage(d.Message, msg, id, 1)
			s.expectBodies(shelter, slices.Delete(slices.Clone(got), i, i+1), "a", "b", "c")
		}
	}
	s.ack(shelter, got...)
	q = s.restart(how)
	s.expectEmpty(q)
	s.expectEmpty(s.open(shelterQueue))
}
