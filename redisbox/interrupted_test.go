package redisbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
	"github.com/mailboxmq/mailbox/redisbox/internal/transfer"
)

// An operation of several steps can be interrupted between any two of them, and the next
// process continues it.

// apart returns a message whose dedup key belongs to another shard than its group, and
// one with the same key in a group of a third shard.
func apart(q *handle, body string) (msg, elsewhere driver.Outgoing) {
	const key = "key"
	home := q.ShardOf(key)
	for i := 0; elsewhere.Group == ""; i++ {
		group := fmt.Sprint("group-", i)
		switch s := q.ShardOf(group); {
		case s == home:
		case msg.Group == "":
			msg = driver.Outgoing{Body: []byte(body), DedupKey: key, Group: group}
		case s != q.ShardOf(msg.Group):
			elsewhere = driver.Outgoing{Body: []byte(body), DedupKey: key, Group: group}
		}
	}
	return msg, elsewhere
}

// claimFor begins to send a message by claiming its key, and stops.
func claimFor(t *testing.T, q *handle, msg *driver.Outgoing) *claim {
	t.Helper()
	extra := q.Special(msg)
	c := &claim{
		home: q.ShardOf(msg.DedupKey), target: q.ShardOf(msg.Group),
		key: extra.Key, bodyHash: extra.BodyHash, id: q.Shards[0].NewID(),
	}
	if code, _, err := c.step(t.Context(), "c"); err != nil || code != 's' {
		t.Fatalf("claim: got %q, error %v", code, err)
	}
	return c
}

func sharded(t *testing.T) *handle {
	b := open(t, connect(t, redistest.SharedCluster(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	return configured(t, b, driver.Config{Shards: 8})
}

func sendOne(t *testing.T, q *handle, msg driver.Outgoing) driver.Sent {
	t.Helper()
	sent, err := q.Send(t.Context(), []driver.Outgoing{msg})
	if err != nil {
		t.Fatal(err)
	}
	return sent[0]
}

func TestAbandonedClaimCanBeUsed(t *testing.T) {
	q := sharded(t)
	msg, elsewhere := apart(q, "body")
	c := claimFor(t, q, &msg)
	// The outcome of the first is unknown, so another message with the same key has to
	// wait.
	patience := q.backend.server.RetryFor
	q.backend.server.RetryFor = 200 * time.Millisecond // it gives up soon
	_, err := q.Send(t.Context(), []driver.Outgoing{elsewhere})
	wantCode(t, err, driver.ErrUnavailable)
	q.backend.server.RetryFor = patience
	conflicting := msg
	conflicting.Body = []byte("another")
	_, err = q.Send(t.Context(), []driver.Outgoing{conflicting})
	wantCode(t, err, driver.ErrConflict)
	// The same message again completes the first send.
	if sent := sendOne(t, q, msg); sent.ID != c.id || sent.Duplicate {
		t.Errorf("got %+v, want the claimed id %s", sent, c.id)
	}
	if sent := sendOne(t, q, elsewhere); sent.ID != c.id || !sent.Duplicate {
		t.Errorf("got %+v, want a duplicate of %s", sent, c.id)
	}
	wantStats(t, q, driver.Stats{Ready: 1})
}

func TestArrivedMessageIsNotSentAgain(t *testing.T) {
	q := sharded(t)
	msg, elsewhere := apart(q, "body")
	c := claimFor(t, q, &msg)
	part := shard.NewSendOp(t.Context(), c.target)
	extra := q.Special(&msg)
	extra.Key, extra.BodyHash, extra.Arrival = "", "", true
	part.Add(0, c.id, &msg, extra)
	if err := c.target.RunBatch(t.Context(), &shard.Batch{Sends: []*shard.SendOp{part}}, shard.CallOptions{Session: &shard.Session{}}); err != nil {
		t.Fatal(err)
	}
	// The sender ends, and the message is acked, before the claim is confirmed.
	d, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
	if err != nil || len(d) != 1 {
		t.Fatal(len(d), err)
	}
	if err := q.Ack(t.Context(), []driver.Receipt{d[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	for _, again := range []driver.Outgoing{msg, elsewhere, msg} {
		if sent := sendOne(t, q, again); sent.ID != c.id || !sent.Duplicate {
			t.Errorf("got %+v, want a duplicate of %s", sent, c.id)
		}
	}
	wantStats(t, q, driver.Stats{})
}

func TestDedupKeyOfRefusedMessageIsFree(t *testing.T) {
	q := sharded(t)
	if err := q.backend.ConfigureQueue(t.Context(), "orders", driver.Config{Shards: 8, MaxMessages: 8}); err != nil {
		t.Fatal(err)
	}
	msg, _ := apart(q, "body")
	filler := driver.Outgoing{Body: []byte("x"), Group: msg.Group}
	sendOne(t, q, filler)
	_, err := q.Send(t.Context(), []driver.Outgoing{msg})
	wantCode(t, err, driver.ErrFull)
	msg.Body = []byte("another")
	_, err = q.Send(t.Context(), []driver.Outgoing{msg})
	wantCode(t, err, driver.ErrFull) // and not a conflict
}

// TestInterruptedForwardingContinues: a dead letter that has arrived in the other queue,
// and has not yet left this one, is moved once.
func TestInterruptedForwardingContinues(t *testing.T) {
	for name, option := range topologies(t) {
		for _, consumed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " consumed ", consumed), func(t *testing.T) {
				prefix := redistest.Prefix(t)
				first := open(t, connect(t, option), &Options{Prefix: prefix})
				q := configured(t, first, driver.Config{MaxDeliveries: 1, DeadLetterTo: "dlq"})
				g, err := first.OpenQueue(t.Context(), "dlq")
				if err != nil {
					t.Fatal(err)
				}
				dlq := g.(*handle)
				s := q.Shards[0]
				q.forwarders[0].Mu.Lock() // keeps this process from moving it
				id := send(t, q, "a")[0]
				receipt := receive(t, q, 1, hold)[0].Receipt
				nacked := make(chan error, 1)
				go func() { nacked <- q.Nack(t.Context(), []driver.Nack{{Receipt: receipt, Cause: "why"}}) }()
				eventually(t, "the dead letter is in the outbox", func() bool {
					dead, err := s.Peek(t.Context(), "outbox", "-inf", 0, 1, false, nil)
					return err == nil && len(dead) == 1
				})
				dead, err := s.Peek(t.Context(), "outbox", "-inf", 0, 1, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				parts := make(map[*shard.Shard]*shard.SendOp)
				if !transfer.AddressDeadLetter(t.Context(), q.Name, dlq.Queue, parts, &dead[0]) {
					t.Fatal("the dead letter cannot be read")
				}
				for to, part := range parts {
					if _, err := transfer.Accept(t.Context(), to, part, nil); err != nil {
						t.Fatal(err)
					}
				}
				if consumed {
					d := receive(t, dlq, 1, hold)[0]
					if err := dlq.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
						t.Fatal(err)
					}
				}

				second := open(t, connect(t, option), &Options{Prefix: prefix})
				wantStats(t, openQueue(t, second), driver.Stats{})
				if consumed {
					wantStats(t, dlq, driver.Stats{})
				} else if got := receive(t, dlq, 1, hold)[0]; got.ID != id || got.Attributes[driver.AttributeDeadError] != "why" {
					t.Errorf("got %+v", got.Message)
				}
				q.forwarders[0].Mu.Unlock()
				if err := <-nacked; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestFullTargetKeepsDeadLettersInSource(t *testing.T) {
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	if err := b.ConfigureQueue(t.Context(), "dlq", driver.Config{MaxMessages: 1}); err != nil {
		t.Fatal(err)
	}
	q := configured(t, b, driver.Config{MaxDeliveries: 1, DeadLetterTo: "dlq"})
	send(t, q, "a", "b")
	for _, d := range receive(t, q, 2, hold) {
		if err := q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}}); err != nil {
			t.Fatal(err)
		}
	}
	wantStats(t, q, driver.Stats{Dead: 1})
	if dead := deadLetters(t, q); len(dead) != 1 || string(dead[0].Body) != "b" {
		t.Errorf("got %+v, want the one that did not fit", dead)
	}
}

func TestInterruptedDeletionIsFinished(t *testing.T) {
	q := sharded(t)
	b := q.backend
	for i := range 40 {
		sendOne(t, q, driver.Outgoing{Body: []byte("x"), Group: fmt.Sprint(i)})
	}
	if err := b.server.DeleteShard(t.Context(), "orders", 0, "m", q.Incarnation); err != nil {
		t.Fatal(err)
	}
	if err := b.server.DeleteShard(t.Context(), "orders", 1, "d", q.Incarnation); err != nil {
		t.Fatal(err)
	}
	_, err := q.Stats(t.Context())
	wantCode(t, err, driver.ErrNotFound)
	again := configured(t, b, driver.Config{Shards: 8})
	wantStats(t, again, driver.Stats{})
	if again.Incarnation <= q.Incarnation {
		t.Errorf("the new queue %s does not come after the old one %s", again.Incarnation, q.Incarnation)
	}
	for i := range 40 {
		sendOne(t, again, driver.Outgoing{Body: []byte("x"), Group: fmt.Sprint(i)})
	}
	wantStats(t, again, driver.Stats{Ready: 40})
	_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("late")}})
	wantCode(t, err, driver.ErrNotFound)
}

// TestConfigurationReachesAllShardsAndProcesses although the process that set it ended
// after the first shard.
func TestConfigurationReachesAllShardsAndProcesses(t *testing.T) {
	q := sharded(t)
	prefix := q.backend.server.Prefix
	other := openQueue(t, open(t, connect(t, redistest.SharedCluster(t).ClientOption()), &Options{Prefix: prefix}))
	config := driver.Config{Shards: 8, MaxMessages: 8, DedupWindow: time.Hour}
	if _, err := configureFirstShard(t, q.backend, "orders", config); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range 100 {
		_, err := other.Send(t.Context(), []driver.Outgoing{{Body: []byte("x"), Group: fmt.Sprint(i)}})
		if errors.Is(err, driver.ErrFull) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// A shard may admit messages before it knows the new limit.
	if refused < 100-3*8 {
		t.Errorf("%d of 100 sends were refused by a queue for 8", refused)
	}
	if window := other.Traits().DedupWindow; window != time.Hour {
		t.Errorf("the other process knows a window of %v", window)
	}
}

func TestEmptiedServerGetsQueuesAgain(t *testing.T) {
	server := redistest.Standalone(t)
	b := open(t, connect(t, server.ClientOption()), nil)
	q := configured(t, b, driver.Config{Shards: 3, MaxMessages: 30})
	send(t, q, "a", "b", "c")
	if _, err := server.Do(t.Context(), "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	wantStats(t, q, driver.Stats{})
	send(t, q, "d", "e")
	wantStats(t, q, driver.Stats{Ready: 2})
	if config, err := b.QueueConfig(t.Context(), "orders"); err != nil || config.MaxMessages != 30 {
		t.Errorf("got %+v, error %v; want the configuration that was in force", config, err)
	}
}
