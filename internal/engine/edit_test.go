package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A backlogShard is a shard with a backlog that sees every effect at once.
type backlogShard struct {
	*Shard
	store  *memoryBacklog
	config driver.Config
}

func newBacklogShard(config driver.Config) *backlogShard {
	s := &backlogShard{Shard: New(config, 1), store: newMemoryBacklog(), config: config}
	s.follow(s.Shard)
	return s
}

func (s *backlogShard) follow(shard *Shard) {
	s.Shard = shard
	shard.SetBacklog(s.store, Limits{Messages: 4, Bytes: 1 << 20, Look: 64, Pass: 64})
	shard.RecordEffects(true)
}

func (s *backlogShard) record() { s.store.CatchUp(s.Effects()) }

func (s *backlogShard) publish(now Moment, e *Entry) {
	s.store.stage(e)
	s.PublishNow(now, e)
	s.record()
}

// wallAt is at, with a wall clock far from zero.
func wallAt(second int) Moment {
	m := at(second)
	m.Wall += 1e18
	return m
}

// A message that has used up its deliveries waits while the dead letters are full. With a due
// time that an edit gave it, and read from the backlog after that, it waits as well.
func TestExhaustedMessageWithDueTimeWaitsForRoom(t *testing.T) {
	s := newBacklogShard(driver.Config{MaxDeliveries: 1, MaxDead: 1})
	for _, id := range []string{"a", "b"} {
		s.publish(wallAt(1), s.StageSend(wallAt(1), Content{ID: id, Body: []byte("x")}, 0))
	}
	if got, _ := s.Receive(wallAt(1), 2, 0, time.Second, nil); len(got) != 2 {
		t.Fatalf("received %d messages, want 2", len(got))
	}
	s.record()
	s.Advance(wallAt(3)) // one dies, and the other waits for room
	s.record()
	var waiting *Entry
	for _, id := range []string{"a", "b"} {
		if e, state := s.Find(wallAt(3), id); state == Delayed {
			waiting = e
		}
	}
	if waiting == nil {
		t.Fatal("no message waits for room")
	}
	s.Reschedule(wallAt(3), waiting, wallAt(8).Wall)
	s.record()
	totals := Totals{Messages: 1, Bytes: 1, Dead: 1, NextSeq: s.nextSeq, Deaths: s.deaths}
	s.follow(New(s.config, 2)) // a restart, after the due time
	s.Restore(wallAt(20), totals, nil)
	if got, _ := s.Receive(wallAt(20), 1, 0, time.Minute, nil); len(got) != 0 || s.stats.Delayed != 1 {
		t.Errorf("received %d messages, and %+v; want one that is delayed", len(got), s.stats)
	}
}

// The ages of messages that are gone are not kept.
func TestAgesOfDelayedMessagesAreForgotten(t *testing.T) {
	for name, retention := range map[string]driver.Retention{"off": {}, "on": {Age: 1000 * time.Hour}} {
		t.Run(name, func(t *testing.T) {
			s := newBacklogShard(driver.Config{RetainReady: retention})
			for i := range 100 {
				now, later := at(4*i), at(4*i+2)
				s.publish(now, s.StageSend(now, Content{ID: fmt.Sprintf("%08d", i), Body: []byte("x")}, time.Second))
				got, _ := s.Receive(later, 1, 0, time.Minute, nil)
				if len(got) != 1 {
					t.Fatalf("message %d: received %d", i, len(got))
				}
				acked, err := s.StageAck(later, Delivery{Seq: got[0].Seq, Nonce: got[0].Nonce, ID: got[0].ID})
				if err != nil {
					t.Fatal(err)
				}
				s.record()
				s.publish(later, acked)
			}
			if n := len(s.window.backs); n > 1 {
				t.Errorf("%d ages are kept of an empty shard", n)
			}
		})
	}
}

// A message that was edited is held beside the end of the window, not at it. Those that return
// after that, to earlier places, are delivered before it, and each message once.
func TestMessageBeyondEndOfWindowIsDeliveredOnce(t *testing.T) {
	s := newBacklogShard(driver.Config{})
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.publish(wallAt(1), s.StageSend(wallAt(1), Content{ID: id}, 0))
	}
	leased, _ := s.Receive(wallAt(1), 5, 0, time.Minute, nil)
	deliveries := make(map[string]Delivery)
	for _, e := range leased {
		deliveries[e.ID] = Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID}
	}
	s.record()
	release := func(id string) {
		e, err := s.StageNack(wallAt(1), deliveries[id], 0, "", driver.NackRelease)
		if err != nil {
			t.Fatal(err)
		}
		s.publish(wallAt(1), e)
	}
	release("e")
	e, _ := s.Find(wallAt(1), "e")
	s.Reschedule(wallAt(1), e, 0)
	s.record()
	s.Available(wallAt(1))
	for _, id := range []string{"a", "b", "c", "d"} {
		release(id)
	}
	got := ""
	for range 6 {
		leased, _ := s.Receive(wallAt(1), 1, 0, time.Minute, nil)
		for _, e := range leased {
			got += e.ID
		}
		s.record()
	}
	if got != "abcde" {
		t.Errorf("received %s, want abcde", got)
	}
}
