package diskbox

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// damageWhileClosed closes a backend, damages records of its first queue, and
// opens it again.
func damageWhileClosed(t *testing.T, m *machine, kind byte, numbers ...uint64) *machine {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	meddle(t, m.disk, func(s *store.Store) {
		for _, number := range numbers {
			spoil(t, s, appendNumberKey(nil, kind, host.ShardID{Queue: 1}, number), "damaged")
		}
	})
	return start(t, m.disk)
}

func lettersOf(t *testing.T, q driver.Queue) (all []driver.DeadLetter) {
	t.Helper()
	for letter, err := range q.DeadLetters(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, letter)
	}
	return all
}

// A dead letter without content is useless to a receiver. It can be peeked, under an id of its
// own, and discarded.
func TestDamagedDeadLettersCanOnlyBeDiscarded(t *testing.T) {
	m := start(t, storetest.NewDisk())
	q := openQueue(t, m, "orders")
	for i := range 6 {
		send(t, q, driver.Outgoing{Body: fmt.Append(nil, i)})
	}
	m = damageWhileClosed(t, m, messageKind, 2, 5)
	q = openQueue(t, m, "orders")
	for range 4 {
		if err := q.Ack(t.Context(), []driver.Receipt{lease(t, q, 1, time.Hour)[0].Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	expectBodies(t, q)
	expectStats(t, q, driver.Stats{Dead: 2})
	letters := lettersOf(t, q)
	if letters[0].ID == "" || letters[0].ID == letters[1].ID {
		t.Errorf("the ids of damaged letters are %q and %q", letters[0].ID, letters[1].ID)
	}
	if n, err := q.Redrive(t.Context(), nil, 0); n != 0 || err != nil {
		t.Errorf("redrove %d damaged letters, %v", n, err)
	}
	if n, err := q.Redrive(t.Context(), []string{letters[0].ID}, 0); n != 0 || !errors.Is(err, driver.ErrIntegrity) {
		t.Errorf("redrove %d damaged letters that were asked for, %v", n, err)
	}
	if n, err := q.Discard(t.Context(), []string{letters[0].ID}); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	expectStats(t, q, driver.Stats{Dead: 1})
	m = reopen(t, m, 0)
	q = openQueue(t, m, "orders")
	expectStats(t, q, driver.Stats{Dead: 1})
	if left := lettersOf(t, q); len(left) != 1 || left[0].ID != letters[1].ID {
		t.Errorf("left are %+v", left)
	}
	if n, err := q.Redrive(t.Context(), nil, 0); n != 0 || err != nil {
		t.Errorf("redrove %d damaged letters after a restart, %v", n, err)
	}
}

// A message whose body is damaged loses only the body: the dead letter has its id and its
// attributes.
func TestDamagedBodyLeavesIDAndAttributes(t *testing.T) {
	m := start(t, storetest.NewDisk())
	q := openQueue(t, m, "orders")
	for i := range 3 {
		send(t, q, driver.Outgoing{Body: fmt.Append(nil, "body ", i), Attributes: map[string]string{"n": fmt.Sprint(i)}, Group: "g"})
	}
	whole := receive(t, q, 3)
	for _, d := range whole {
		if err := q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}}); err != nil {
			t.Fatal(err)
		}
	}
	closeIt(t, m)
	meddle(t, m.disk, func(s *store.Store) {
		key := appendNumberKey(nil, messageKind, host.ShardID{Queue: 1}, 2)
		record, err := s.Get(key, nil)
		if err != nil {
			t.Fatal(err)
		}
		record[len(record)-crcLen-1] ^= 1 // the last byte of the body
		b := s.NewBatch()
		b.Set(key, record)
		if err := s.Commit(b, true); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 { // as it is found, and as it is stored then
		m = start(t, m.disk)
		q = openQueue(t, m, "orders")
		stats, _ := q.Stats(t.Context())
		expectBodies(t, q, []string{"body 0", "body 2"}[stats.Dead*2:]...)
		letters := lettersOf(t, q)
		if len(letters) != 1 {
			t.Fatalf("the dead letters are %+v", letters)
		}
		if l := letters[0]; l.ID != whole[1].ID || l.Attributes["n"] != "1" || l.Group != "g" || l.Reason != driver.ReasonIntegrity || len(l.Body) > 0 {
			t.Errorf("the dead letter is %+v", l)
		}
		if n, err := q.Redrive(t.Context(), []string{letters[0].ID}, 0); n != 0 || !errors.Is(err, driver.ErrIntegrity) {
			t.Errorf("redrove %d without a body, %v", n, err)
		}
		closeIt(t, m)
	}
}

// A dead letter that is damaged keeps its id, which is also in the index by id.
func TestDamagedDeadLetterKeepsItsID(t *testing.T) {
	m := start(t, storetest.NewDisk())
	q := openQueue(t, m, "orders")
	send(t, q, make([]driver.Outgoing, 2)...)
	for _, d := range lease(t, q, 2, time.Hour) {
		if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
	}
	before := lettersOf(t, q)
	m = damageWhileClosed(t, m, deadKind, 1)
	q = openQueue(t, m, "orders")
	after := lettersOf(t, q)
	if len(after) != 2 || after[0].ID != before[0].ID || after[0].Reason != driver.ReasonIntegrity {
		t.Errorf("the letters were %+v and are %+v", before, after)
	}
	if n, err := q.Discard(t.Context(), []string{before[0].ID}); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	reopen(t, m, 0)
}

// The state record of a message has its place. If it is damaged, the message is still complete:
// it becomes a dead letter that can be redriven.
func TestDamagedStateLosesNoMessage(t *testing.T) {
	for _, nacked := range []bool{false, true} {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m, "orders")
		for i := range 12 {
			send(t, q, driver.Outgoing{Body: fmt.Append(nil, i)})
		}
		for _, d := range lease(t, q, 2, time.Hour) {
			if nacked { // then it has another place
				if err := q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}}); err != nil {
					t.Fatal(err)
				}
			} else if _, err := q.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
				t.Fatal(err)
			}
		}
		m = damageWhileClosed(t, m, stateKind, 1)
		q = openQueue(t, m, "orders")
		lease(t, q, 11, time.Hour)
		expectBodies(t, q)
		expectStats(t, q, driver.Stats{InFlight: 11, Dead: 1})
		if letter := lettersOf(t, q)[0]; letter.Reason != driver.ReasonIntegrity || string(letter.Body) != "0" {
			t.Errorf("the letter is %+v", letter)
		}
		if n, err := q.Redrive(t.Context(), nil, 0); n != 1 || err != nil {
			t.Errorf("redrove %d, %v", n, err)
		}
		expectBodies(t, q, "0")
		reopen(t, m, 0)
	}
}

// A message that was damaged after it was given another place is found there while the backend
// runs, and receivers do not spin.
func TestDamagedNackedMessageLeaves(t *testing.T) {
	for _, kind := range []byte{messageKind, stateKind} {
		synctest.Test(t, func(t *testing.T) {
			m := start(t, storetest.NewDisk())
			q := openQueue(t, m, "orders")
			for i := range 12 {
				send(t, q, driver.Outgoing{Body: fmt.Append(nil, i)})
			}
			d := lease(t, q, 2, time.Hour)[0]
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}}); err != nil {
				t.Fatal(err)
			}
			if err := m.journal.flush(); err != nil {
				t.Fatal(err)
			}
			spoil(t, m.store, appendNumberKey(nil, kind, host.ShardID{Queue: 1}, 1), "damaged")
			lease(t, q, 10, time.Hour)
			// Virtual time passes only while all goroutines are blocked.
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Second})
			if len(got) > 0 || err != nil {
				t.Errorf("received %v, %v", got, err)
			}
			expectStats(t, q, driver.Stats{InFlight: 11, Dead: 1})
			reopen(t, m, 0)
		})
	}
}

func TestDamagedDelayedMessageCountsAsDelayed(t *testing.T) {
	for _, readFirst := range []time.Duration{0, 11 * time.Minute} { // before and when it is due
		synctest.Test(t, func(t *testing.T) {
			m := start(t, storetest.NewDisk())
			q := openQueue(t, m, "orders")
			for i := range 20 {
				send(t, q, driver.Outgoing{Body: fmt.Append(nil, i), Delay: time.Duration(i%2) * 10 * time.Minute})
			}
			m = damageWhileClosed(t, m, messageKind, 2, 18)
			q = openQueue(t, m, "orders")
			expectStats(t, q, driver.Stats{Ready: 10, Delayed: 10})
			time.Sleep(readFirst)
			lease(t, q, 10, 24*time.Hour/2)
			m = reopen(t, m, 0)
			q = openQueue(t, m, "orders")
			time.Sleep(11*time.Minute - readFirst)
			for {
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: 12 * time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				if len(got) == 0 {
					break
				}
			}
			expectStats(t, q, driver.Stats{InFlight: 18, Dead: 2})
			reopen(t, m, 0)
		})
	}
}

// The size of a damaged message is unknown. An empty queue has room again.
func TestDamagedMessageFreesItsRoom(t *testing.T) {
	m := start(t, storetest.NewDisk())
	q := configure(t, m, "orders", driver.Config{MaxBytes: 100})
	send(t, q, driver.Outgoing{Body: make([]byte, 60)}, driver.Outgoing{Body: make([]byte, 40)})
	m = damageWhileClosed(t, m, messageKind, 1)
	q = openQueue(t, m, "orders")
	if err := q.Ack(t.Context(), []driver.Receipt{lease(t, q, 1, time.Hour)[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	expectStats(t, q, driver.Stats{Dead: 1})
	send(t, q, driver.Outgoing{Body: make([]byte, 100)})
	m = reopen(t, m, 0)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = openQueue(t, m, "orders")
	if err := q.Ack(t.Context(), []driver.Receipt{lease(t, q, 1, time.Hour)[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	send(t, q, driver.Outgoing{Body: make([]byte, 100)})
}
