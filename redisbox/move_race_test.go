package redisbox

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
	"github.com/mailboxmq/mailbox/redisbox/internal/transfer"
)

// Of two processes that move the same message one may be very slow.

// heldMove begins a move in another process, which a proxy holds before the other queue
// gets a message. It returns a function that lets it continue, and its result.
func heldMove(t *testing.T, server *redistest.Server, prefix string) (release func(), done <-chan error) {
	t.Helper()
	proxy := redistest.NewProxy(t, server.Addr())
	slow := openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: prefix}))
	target := shard.Tag(prefix, "shelter", 0) + "meta"
	held, release := holdFirst(proxy, shard.BatchScript, func(args []string) bool { return args[3] == target })
	moved := make(chan error, 1)
	go func() {
		_, err := slow.Move(t.Context(), "shelter", 1)
		moved <- err
	}()
	<-held
	return release, moved
}

func TestSlowMoverAddsNothingAlreadyMoved(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.SharedServer(t), redistest.Prefix(t)
	b := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	send(t, q, "a")
	release, done := heldMove(t, server, prefix)
	stall(t, q)
	eventually(t, "another has moved it", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats == driver.Stats{}
	})
	ackAll(t, shelter, receive(t, shelter, 1, hold))
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantStats(t, q, driver.Stats{})
	wantStats(t, shelter, driver.Stats{})
}

// TestSlowMoverAddsNothingPutBack: the other queue was full for the process that resumed
// the move, and has room when the slow one comes.
func TestSlowMoverAddsNothingPutBack(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.SharedServer(t), redistest.Prefix(t)
	b := open(t, connect(t, server.ClientOption()), &Options{Prefix: prefix})
	if err := b.ConfigureQueue(t.Context(), "shelter", driver.Config{MaxMessages: 1}); err != nil {
		t.Fatal(err)
	}
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	send(t, q, "a")
	send(t, shelter, "in the way")
	release, done := heldMove(t, server, prefix)
	stall(t, q)
	eventually(t, "another has put it back", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats == driver.Stats{Ready: 1}
	})
	ackAll(t, q, receive(t, q, 1, hold))
	ackAll(t, shelter, receive(t, shelter, 1, hold))
	release()
	wantCode(t, <-done, driver.ErrFull)
	wantStats(t, q, driver.Stats{})
	wantStats(t, shelter, driver.Stats{})
}

// TestSecondDeathIsForwardedAgain although the other queue remembers the first.
func TestSecondDeathIsForwardedAgain(t *testing.T) {
	t.Parallel()
	for topology, option := range topologies(t) {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			b := open(t, connect(t, option), &Options{Prefix: redistest.Prefix(t)})
			q := configured(t, b, driver.Config{DeadLetterTo: "dlq"})
			dlq := openNamed(t, b, "dlq")
			send(t, q, "a")
			for range 3 {
				d := receive(t, q, 1, hold)[0]
				if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
					t.Fatal(err)
				}
				wantStats(t, q, driver.Stats{})
				wantStats(t, dlq, driver.Stats{Ready: 1})
				if n, err := dlq.Move(t.Context(), "", 0); err != nil || n != 1 {
					t.Fatalf("home: %d moved, error %v", n, err)
				}
			}
			wantStats(t, dlq, driver.Stats{})
			wantStats(t, q, driver.Stats{Ready: 1})
		})
	}
}

// TestSlowForwarderKeepsLaterDeath: it reports a dead letter as moved that has come back
// since and died again.
func TestSlowForwarderKeepsLaterDeath(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := configured(t, b, driver.Config{DeadLetterTo: "dlq"})
	dlq, s := openNamed(t, b, "dlq"), q.Shards[0]
	send(t, q, "a")
	d := receive(t, q, 1, hold)[0]
	q.forwarders[0].Mu.Lock() // keeps this process from moving it
	done := make(chan error, 1)
	go func() {
		done <- q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
	}()
	eventually(t, "the dead letter is in the outbox", func() bool {
		dead, err := s.Peek(t.Context(), "outbox", "-inf", 0, 1, false, nil)
		return err == nil && len(dead) == 1
	})
	for _, what := range []string{"m", "k"} {
		if _, err := s.CallDurably(t.Context(), shard.ForwardScript, true, d.ID, "1", what); err != nil { // of an earlier death
			t.Fatal(err)
		}
	}
	q.forwarders[0].Mu.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantStats(t, q, driver.Stats{})
	wantStats(t, dlq, driver.Stats{Ready: 1})
}

// TestSlowMoverDoesNotEndLaterMove: a later move of the same message goes on.
func TestSlowMoverDoesNotEndLaterMove(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	send(t, q, "a")
	end := func(d *shard.ReservedMessage, what string) int {
		c := &transfer.Transfer{From: q.Shards[0]}
		c.Decide(d, what)
		d.Resumed = true // it counts for the process that records it first
		n, err := c.Finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := reserve(t, q, shelter, 1)
	end(&first[0], "k")
	wantStats(t, q, driver.Stats{Ready: 1})
	second := reserve(t, q, shelter, 1)
	if n := end(&first[0], "m"); n != 0 {
		t.Errorf("the first mover has ended what the second began")
	}
	wantStats(t, q, driver.Stats{InFlight: 1})
	if n := end(&second[0], "m"); n != 1 {
		t.Errorf("the second mover could not end what it began")
	}
	wantStats(t, q, driver.Stats{})
}
