package diskbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

func closeIt(t *testing.T, m *machine) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, m *machine) {
	t.Helper()
	if err := m.journal.flush(); err != nil {
		t.Fatal(err)
	}
}

// A dead letter that was about to be forwarded when the power failed, and is damaged, stays.
func TestDamagedDeadLetterIsNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		a := openQueue(t, m, "a")
		send(t, a, driver.Outgoing{Body: []byte("precious")})
		d := lease(t, a, 1, time.Hour)[0]
		if err := a.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
		configure(t, m, "a", driver.Config{DeadLetterTo: "b"})
		closeIt(t, m)
		meddle(t, m.disk, func(s *store.Store) {
			// as a crash between the death and its forwarding leaves it
			b := s.NewBatch()
			b.Set(appendNumberKey(nil, leavingKind, host.ShardID{Queue: 1}, 1), []byte(d.ID))
			if err := s.Commit(b, true); err != nil {
				t.Fatal(err)
			}
			spoil(t, s, appendNumberKey(nil, deadKind, host.ShardID{Queue: 1}, 1), "damaged")
		})
		m = start(t, m.disk)
		got, _ := openQueue(t, m, "b").Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Hour})
		for _, d := range got {
			t.Errorf("delivered %q, %v", d.Body, d.Attributes)
		}
		expectStats(t, openQueue(t, m, "a"), driver.Stats{Dead: 1})
	})
}

// A message in memory is complete, whatever happens to its record.
func TestDamageOfAHeldMessageDoesNotMatter(t *testing.T) {
	for _, kind := range []byte{messageKind, stateKind} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%c %v", kind, strict), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := start(t, storetest.NewDisk())
					q := configure(t, m, "a", driver.Config{StrictGroups: strict})
					send(t, q, driver.Outgoing{Body: []byte("one")})
					d := lease(t, q, 1, time.Minute)[0] // has a state then
					if _, err := q.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					flush(t, m)
					spoil(t, m.store, appendNumberKey(nil, kind, host.ShardID{Queue: 1}, 1), "damaged")
					for range q.Peek(t.Context(), driver.Query{}) {
					}
					got := lease(t, q, 1, time.Hour)
					stats, _ := q.Stats(t.Context())
					if stats.Ready+stats.InFlight+stats.Dead != 1 || stats.Ready < 0 {
						t.Errorf("one message is %+v", stats)
					}
					for _, d := range got {
						if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
							t.Error(err)
						}
					}
					send(t, q, driver.Outgoing{Body: []byte("two")})
					closeIt(t, m)
					m = start(t, m.disk)
					q = openQueue(t, m, "a")
					expectBodies(t, q, "two")
				})
			})
		}
	}
}

func TestRetentionPassesOverDamageOfAHeldMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := configure(t, m, "a", driver.Config{RetainReady: driver.Retention{Count: 2}})
		send(t, q, driver.Outgoing{Body: []byte("1")}, driver.Outgoing{Body: []byte("2")})
		flush(t, m)
		spoil(t, m.store, appendNumberKey(nil, messageKind, host.ShardID{Queue: 1}, 1), "damaged")
		send(t, q, driver.Outgoing{Body: []byte("3")}) // pushes out the oldest
		expectStats(t, q, driver.Stats{Ready: 2, Dead: 1})
		expectBodies(t, q, "2", "3")
		expectStats(t, q, driver.Stats{InFlight: 2, Dead: 1})
	})
}

// The message that is read because it is due is still counted as delayed.
func TestDamagedDelayedMessageAtTheHorizonIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m, "a")
		for i := range 12 {
			send(t, q, driver.Outgoing{Body: fmt.Append(nil, i), Delay: time.Duration(i+1) * time.Minute})
		}
		m = damageWhileClosed(t, m, messageKind, 4)
		q = openQueue(t, m, "a")
		for range 12 {
			time.Sleep(time.Minute)
			_, _ = q.Stats(t.Context())
		}
		time.Sleep(time.Minute)
		expectStats(t, q, driver.Stats{Ready: 11, Dead: 1})
	})
}

// A wrong count would keep receivers asleep.
func TestLongPollsAreWokenAfterDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m, "a")
		for i := range 6 {
			send(t, q, driver.Outgoing{Body: fmt.Append(nil, i), Delay: time.Duration(i+1) * time.Minute})
		}
		m = damageWhileClosed(t, m, messageKind, 4)
		q = openQueue(t, m, "a")
		for range 12 {
			time.Sleep(time.Minute)
			_, _ = q.Stats(t.Context())
		}
		lease(t, q, 5, time.Hour)
		expectStats(t, q, driver.Stats{InFlight: 5, Dead: 1})
		go func() {
			time.Sleep(time.Second)
			send(t, q, driver.Outgoing{Body: []byte("new")})
		}()
		began := time.Now()
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: 20 * time.Second})
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("received %d, %v after %v", len(got), err, waited)
		}
	})
}

func TestDamagedDelayedHeadFreesItsGroup(t *testing.T) {
	for _, damageLate := range []bool{false, true} {
		t.Run(fmt.Sprint(damageLate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := start(t, storetest.NewDisk())
				q := configure(t, m, "a", driver.Config{StrictGroups: true})
				for i := range 5 {
					send(t, q, driver.Outgoing{Body: []byte("x"), Group: fmt.Sprint("x", i), Delay: time.Minute})
				}
				send(t, q, driver.Outgoing{Body: []byte("head"), Group: "g"})
				head := receive(t, q, 1)[0]
				if err := q.Nack(t.Context(), []driver.Nack{{Receipt: head.Receipt, Delay: 2 * time.Minute}}); err != nil {
					t.Fatal(err)
				}
				send(t, q, driver.Outgoing{Body: []byte("next"), Group: "g"})
				m = reopen(t, m, 0)
				q = openQueue(t, m, "a")
				if damageLate {
					expectBodies(t, q) // has read all messages
				}
				flush(t, m)
				spoil(t, m.store, appendNumberKey(nil, messageKind, host.ShardID{Queue: 1}, 6), "damaged")
				for range q.Peek(t.Context(), driver.Query{}) {
				}
				time.Sleep(10 * time.Minute)
				expectBodies(t, q, "x", "x", "x", "x", "x", "next")
				expectStats(t, q, driver.Stats{InFlight: 6, Dead: 1})
			})
		})
	}
}

func TestDamagedIndexesAreNotSilent(t *testing.T) {
	prepare := func(t *testing.T) *machine {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m, "a")
		send(t, q, driver.Outgoing{Body: []byte("one")}, driver.Outgoing{Body: []byte("two")})
		d := lease(t, q, 1, time.Hour)[0]
		if err := q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}}); err != nil {
			t.Fatal(err)
		}
		closeIt(t, m)
		return m
	}
	shard := host.ShardID{Queue: 1}
	for name, damage := range map[string]func(s *store.Store){
		"w damaged": func(s *store.Store) { spoil(t, s, appendNumberKey(nil, placeKind, shard, 3), "damaged") },
		"w removed": func(s *store.Store) { spoil(t, s, appendNumberKey(nil, placeKind, shard, 3), "removed") },
		"c removed": func(s *store.Store) { spoil(t, s, appendShardKey(nil, countKind, shard), "removed") },
		"c damaged": func(s *store.Store) { spoil(t, s, appendShardKey(nil, countKind, shard), "damaged") },
		"X removed": func(s *store.Store) { spoil(t, s, metaKey, "removed") },
		"T damaged": func(s *store.Store) { spoil(t, s, clockKey, "damaged") },
		"T removed": func(s *store.Store) { spoil(t, s, clockKey, "removed") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := prepare(t)
				meddle(t, m.disk, damage)
				b, err := Open(t.Context(), "queues", &Options{fs: m.disk.FS(), boot: bubbleClock{}, small: true, secret: aSecret})
				if err != nil {
					return
				}
				q := openQueue(t, b, "a")
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Hour})
				stats, _ := q.Stats(t.Context())
				dead := stats.Dead
				if len(got)+dead != 2 && err == nil {
					t.Errorf("received %d of 2, %+v, no error", len(got), stats)
				}
				_ = b.Close()
			})
		})
	}
}

func TestDamagedDeadLetterIsRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		time.Sleep(3 * time.Hour)
		q := configure(t, m, "a", driver.Config{RetainDead: driver.Retention{Age: 2 * time.Hour}})
		send(t, q, driver.Outgoing{Body: []byte("one")})
		d := lease(t, q, 1, time.Hour)[0]
		if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
		m = damageWhileClosed(t, m, deadKind, 1)
		q = openQueue(t, m, "a")
		expectStats(t, q, driver.Stats{Dead: 1})
	})
}

func TestDamagedMessagesOfTwoShardsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := configure(t, m, "a", driver.Config{Shards: 2})
		send(t, q, make([]driver.Outgoing, 2)...)
		flush(t, m)
		closeIt(t, m)
		meddle(t, m.disk, func(s *store.Store) {
			for n := range uint16(2) {
				spoil(t, s, appendNumberKey(nil, messageKind, host.ShardID{Queue: 1, Shard: n}, 1), "damaged")
			}
		})
		m = start(t, m.disk)
		q = openQueue(t, m, "a")
		expectBodies(t, q)
		letters := lettersOf(t, q)
		if n, err := q.Discard(t.Context(), []string{letters[0].ID}); n != 1 || err != nil {
			t.Errorf("of %q and %q, discarded %d, %v", letters[0].ID, letters[1].ID, n, err)
		}
	})
}

// Not even the index by id is left.
func TestDamagedDeadLettersWithoutIDsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m, "a")
		send(t, q, make([]driver.Outgoing, 3)...)
		var ids []string
		for _, d := range lease(t, q, 3, time.Hour) {
			ids = append(ids, d.ID)
			if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
				t.Fatal(err)
			}
		}
		closeIt(t, m)
		meddle(t, m.disk, func(s *store.Store) {
			for n := range uint64(2) {
				spoil(t, s, appendNumberKey(nil, deadKind, host.ShardID{Queue: 1}, n+1), "damaged")
				spoil(t, s, appendDeadIDKey(nil, host.ShardID{Queue: 1}, ids[n]), "damaged")
			}
		})
		m = start(t, m.disk)
		q = configure(t, m, "a", driver.Config{RetainDead: driver.Retention{Count: 2}})
		expectStats(t, q, driver.Stats{Dead: 2})
		q = configure(t, m, "a", driver.Config{RetainDead: driver.Retention{Count: 1}})
		expectStats(t, q, driver.Stats{Dead: 1})
		if left := lettersOf(t, q); len(left) != 1 || left[0].ID != ids[2] {
			t.Errorf("left are %d", len(left))
		}
	})
}

// The number of a dead letter decides where it goes; the content of the record is only
// informative.
func TestDamagedLeavingRecordIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		a := openQueue(t, m, "a")
		send(t, a, driver.Outgoing{Body: []byte("precious")})
		d := lease(t, a, 1, time.Hour)[0]
		if err := a.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
		configure(t, m, "a", driver.Config{DeadLetterTo: "b"})
		closeIt(t, m)
		meddle(t, m.disk, func(s *store.Store) {
			b := s.NewBatch()
			b.Set(appendNumberKey(nil, leavingKind, host.ShardID{Queue: 1}, 1), []byte("damaged"+d.ID))
			if err := s.Commit(b, true); err != nil {
				t.Fatal(err)
			}
		})
		m = start(t, m.disk)
		expectStats(t, openQueue(t, m, "b"), driver.Stats{Ready: 1})
		closeIt(t, m)
		sound(t, m.disk)
	})
}
