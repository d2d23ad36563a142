package redisbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// cutting is a queue behind a proxy that cuts the connection, at one of several points, in
// the next call of a script.
type cutting struct {
	*handle
	action redistest.Action
	armed  atomic.Pointer[string]
	cuts   atomic.Int32
}

func newCutting(t *testing.T, action redistest.Action, config driver.Config) *cutting {
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)})
	c := &cutting{handle: configured(t, b, config), action: action}
	proxy.OnRequest(func(args []string) redistest.Action {
		if sha := c.armed.Load(); sha != nil && len(args) > 1 && args[1] == *sha {
			c.armed.Store(nil)
			c.cuts.Add(1)
			return action
		}
		return redistest.Pass
	})
	return c
}

// arm makes the proxy cut the next call of a script.
func (c *cutting) arm(s *shard.Script) { c.armed.Store(&s.Sha) }

func (c *cutting) check(t *testing.T) {
	t.Helper()
	if c.armed.Load() != nil || c.cuts.Load() == 0 {
		t.Fatal("nothing was cut: this test proves nothing")
	}
	c.cuts.Store(0)
}

// TestRepeatedCallTakesEffectOnce: whenever the connection is lost, the repeated call takes
// effect exactly once, and returns the result.
func TestRepeatedCallTakesEffectOnce(t *testing.T) {
	for name, action := range map[string]redistest.Action{
		"before the request": redistest.CutBefore, "inside the request": redistest.CutInside, "before the answer": redistest.CutAfter,
	} {
		for op, try := range map[string]func(t *testing.T, c *cutting){
			"send": trySend, "receive": tryReceive, "ack": tryAck, "nack": tryNack, "extend": tryExtend,
			"late ack": tryAckLate, "move reserve": tryMove(shard.MoveReserveScript), "move finish": tryMove(shard.MoveFinishScript),
			"dead-letter": tryDeadLetter, "redrive": tryRedrive, "discard": tryDiscard, "purge": tryPurge, "stats": tryStats,
		} {
			t.Run(op+" cut "+name, func(t *testing.T) {
				c := newCutting(t, action, driver.Config{})
				for range 3 { // a session continues after a repeated turn
					try(t, c)
					c.check(t)
				}
			})
		}
	}
}

func trySend(t *testing.T, c *cutting) {
	before, _ := c.Stats(t.Context())
	c.arm(shard.BatchScript)
	send(t, c, "a", "b")
	before.Ready += 2
	wantStats(t, c, before)
}

func tryReceive(t *testing.T, c *cutting) {
	send(t, c, "a", "b", "c")
	c.arm(shard.BatchFullScript)
	got := receive(t, c, 3, hold)
	for i, d := range got {
		if want := string("abc"[i]); string(d.Body) != want || d.Deliveries != 1 {
			t.Fatalf("got %q, delivery %d; want %q, delivery 1", d.Body, d.Deliveries, want)
		}
		if err := c.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	wantStats(t, c, driver.Stats{})
}

func tryAck(t *testing.T, c *cutting) {
	send(t, c, "a")
	receipt := receive(t, c, 1, hold)[0].Receipt
	c.arm(shard.BatchFullScript)
	if err := c.Ack(t.Context(), []driver.Receipt{receipt}); err != nil {
		t.Fatalf("an ack that was repeated: %v", err)
	}
	wantCode(t, c.Ack(t.Context(), []driver.Receipt{receipt}), driver.ErrReceiptExpired)
	wantStats(t, c, driver.Stats{})
}

func tryAckLate(t *testing.T, c *cutting) {
	send(t, c, "a")
	d := receive(t, c, 1, hold)[0]
	if _, err := c.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
		t.Fatal(err)
	}
	c.arm(shard.BatchFullScript)
	if err := c.AckLate(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
		t.Fatalf("a late ack that was repeated: %v", err)
	}
	wantStats(t, c, driver.Stats{})
}

func tryMove(sc *shard.Script) func(t *testing.T, c *cutting) {
	return func(t *testing.T, c *cutting) {
		shelter := openNamed(t, c.backend, "shelter")
		send(t, c, "a", "b", "c")
		c.arm(sc)
		if n, err := c.Move(t.Context(), "shelter", 2); err != nil || n != 2 {
			t.Fatalf("a move that was repeated: got %d, error %v; want 2", n, err)
		}
		wantStats(t, c, driver.Stats{Ready: 1})
		wantStats(t, shelter, driver.Stats{Ready: 2})
		for _, q := range []*handle{c.handle, shelter} {
			if _, err := q.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func tryNack(t *testing.T, c *cutting) {
	send(t, c, "a", "b")
	first := receive(t, c, 1, hold)[0]
	c.arm(shard.BatchFullScript)
	if err := c.Nack(t.Context(), []driver.Nack{{Receipt: first.Receipt, Cause: "why"}}); err != nil {
		t.Fatalf("a nack that was repeated: %v", err)
	}
	for i, d := range receive(t, c, 2, hold) {
		if want := string("ba"[i]); string(d.Body) != want {
			t.Fatalf("got %q, want %q", d.Body, want)
		}
		if err := c.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
}

func tryExtend(t *testing.T, c *cutting) {
	send(t, c, "a")
	d := receive(t, c, 1, hold)[0]
	c.arm(shard.BatchFullScript)
	if _, err := c.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt}}); err != nil {
		t.Fatalf("an extension to zero that was repeated: %v", err)
	}
	if err := c.Ack(t.Context(), []driver.Receipt{receive(t, c, 1, hold)[0].Receipt}); err != nil {
		t.Fatal(err)
	}
}

func tryDeadLetter(t *testing.T, c *cutting) {
	send(t, c, "a")
	dead := driver.DeadLetterRequest{Receipt: receive(t, c, 1, hold)[0].Receipt, Reason: driver.ReasonFatal}
	c.arm(shard.BatchFullScript)
	if err := c.DeadLetter(t.Context(), []driver.DeadLetterRequest{dead}); err != nil {
		t.Fatalf("a repeated dead-letter: %v", err)
	}
	if n, err := c.PurgeDead(t.Context()); err != nil || n != 1 {
		t.Fatalf("got %d dead letters, error %v; want 1", n, err)
	}
}

// kill makes dead letters.
func kill(t *testing.T, c *cutting, bodies ...string) (ids []string) {
	t.Helper()
	send(t, c, bodies...)
	for _, d := range receive(t, c, len(bodies), hold) {
		ids = append(ids, d.ID)
		if err := c.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func tryRedrive(t *testing.T, c *cutting) {
	kill(t, c, "a", "b")
	c.arm(shard.RedriveScript)
	if n, err := c.Redrive(t.Context(), nil, 0); err != nil || n != 2 {
		t.Fatalf("a redrive that was repeated: got %d, error %v; want 2", n, err)
	}
	for _, d := range receive(t, c, 2, hold) {
		if err := c.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
			t.Fatal(err)
		}
	}
}

func tryDiscard(t *testing.T, c *cutting) {
	ids := kill(t, c, "a", "b")
	c.arm(shard.DiscardScript)
	if n, err := c.Discard(t.Context(), ids); err != nil || n != 2 {
		t.Fatalf("a discard that was repeated: got %d, error %v; want 2", n, err)
	}
}

func tryPurge(t *testing.T, c *cutting) {
	send(t, c, "a", "b")
	c.arm(shard.PurgeScript)
	if n, err := c.Purge(t.Context()); err != nil || n != 2 {
		t.Fatalf("a purge that was repeated: got %d, error %v; want 2", n, err)
	}
}

func tryStats(t *testing.T, c *cutting) {
	c.arm(shard.UsageScript)
	wantStats(t, c, driver.Stats{})
}

// TestLateRequestDoesNothing is about a request that reaches the server after it was
// repeated.
func TestLateRequestDoesNothing(t *testing.T) {
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	s := q.Shards[0]
	call := func(turn string, bodies ...string) string {
		part := shard.NewSendOp(t.Context(), s)
		for i, body := range bodies {
			part.Add(i, s.NewID(), &driver.Outgoing{Body: []byte(body)}, shard.Extra{})
		}
		args := append([]string{q.Incarnation, "0", "0", "session", turn}, s.Arguments(&shard.Batch{Sends: []*shard.SendOp{part}})...)
		reply, err := b.server.Eval(t.Context(), shard.BatchScript, s.Keys, args, 0)
		if err != nil {
			t.Fatal(err)
		}
		status, _ := reply[0].ToString()
		return status
	}
	for i, step := range []struct{ turn, want string }{{"7", "ok"}, {"7", "ok"}, {"6", "late"}, {"8", "ok"}, {"7", "late"}} {
		if status := call(step.turn, "a"); status != step.want {
			t.Fatalf("step %d, turn %s: got %q, want %q", i, step.turn, status, step.want)
		}
	}
	wantStats(t, q, driver.Stats{Ready: 2})
}

// TestUnsteadyConnectionLosesNothing sends, receives and acks concurrently while the
// connection is cut again and again. Every message must be delivered exactly once,
// because repeated calls are recognized.
func TestUnsteadyConnectionLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t), RetryFor: time.Minute})
	q := openQueue(t, b)
	proxy.OnRequest(func(args []string) redistest.Action {
		if args[0] != "EVALSHA" && args[0] != "EVAL" {
			return redistest.Pass
		}
		switch rand.IntN(20) {
		case 0:
			return redistest.CutBefore
		case 1:
			return redistest.CutInside
		case 2:
			return redistest.CutAfter
		}
		return redistest.Pass
	})
	const workers, each = 8, 60
	var mu sync.Mutex
	seen := make(map[string]int)
	var left atomic.Int32
	left.Store(workers * each)
	errs := make(chan error, 10*workers*each)
	deadline := time.Now().Add(time.Minute)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range each {
				if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: fmt.Append(nil, w, ":", i)}}); err != nil {
					errs <- err
				}
			}
		})
		group.Go(func() {
			for left.Load() > 0 && time.Now().Before(deadline) {
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 3, Visibility: hold, Wait: 100 * time.Millisecond})
				if err != nil {
					errs <- err
					return
				}
				for _, d := range got {
					mu.Lock()
					seen[string(d.Body)] += d.Deliveries
					mu.Unlock()
					if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
						errs <- err
					}
					left.Add(-1)
				}
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if len(seen) != workers*each {
		t.Errorf("%d messages were delivered, want %d", len(seen), workers*each)
	}
	for body, n := range seen {
		if n != 1 {
			t.Errorf("%s was delivered %d times", body, n)
		}
	}
	proxy.OnRequest(nil)
	wantStats(t, q, driver.Stats{})
}

func TestFlushedScriptsAreLoadedAgain(t *testing.T) {
	server := redistest.Standalone(t)
	b := open(t, connect(t, server.ClientOption()), nil)
	q := openQueue(t, b)
	for _, step := range []func(){
		func() { send(t, q, "a", "b") },
		func() { wantStats(t, q, driver.Stats{Ready: 2}) },
		func() {
			d := receive(t, q, 1, hold)[0]
			if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Fatal(err)
			}
		},
		func() { openQueue(t, b) },
		func() {
			if _, err := q.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if _, err := server.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		step()
	}
	wantStats(t, q, driver.Stats{})
}

func TestAbsentServerIsUnavailableAfterRetryTime(t *testing.T) {
	t.Parallel()
	const patience = 2 * time.Second
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t), RetryFor: patience})
	q := openQueue(t, b)
	send(t, q, "a")
	proxy.Refuse(true)
	proxy.Cut()
	start := time.Now()
	_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("b")}})
	wantCode(t, err, driver.ErrUnavailable)
	if took := time.Since(start); took < patience/2 || took > 10*patience {
		t.Errorf("it took %v to give up, want about %v", took, patience)
	}
	_, err = q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
	wantCode(t, err, driver.ErrUnavailable)
	wantCode(t, b.Ping(t.Context()), driver.ErrUnavailable)
	proxy.Refuse(false)
	wantStats(t, q, driver.Stats{Ready: 1})
}

func TestCallerCanLeaveHangingServer(t *testing.T) {
	t.Parallel()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	send(t, q, "a")
	proxy.Blackhole(true)
	for op, do := range map[string]func(ctx context.Context) error{
		"send":  func(ctx context.Context) error { _, err := q.Send(ctx, []driver.Outgoing{{}}); return err },
		"stats": func(ctx context.Context) error { _, err := q.Stats(ctx); return err },
		"receive": func(ctx context.Context) error {
			_, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: hold})
			return err
		},
	} {
		takesLess(t, 4*time.Second, op+" whose context ends", func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want the context's error", op, err)
			}
		})
	}
	proxy.Blackhole(false)
	// The messages of the receiver that left were given back, and do not count as delivered.
	eventually(t, "the message comes back", func() bool {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: hold})
		return err == nil && len(got) == 1 && got[0].Deliveries == 1 && string(got[0].Body) == "a"
	})
}
