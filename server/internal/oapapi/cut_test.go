package oapapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// cutter makes connections that break after so many bytes.
type cutter struct {
	daemon *daemon
	mu     sync.Mutex
	latest *cutConn
}

func (c *cutter) dial(ctx context.Context, address string) (net.Conn, error) {
	nc, err := c.daemon.pipe(ctx, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = &cutConn{Conn: nc, toWrite: -1, toRead: -1}
	return c.latest, nil
}

// cutAfter breaks the latest connection when it has written or read so many more
// bytes; less than 0 is never.
func (c *cutter) cutAfter(toWrite, toRead int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest.mu.Lock()
	defer c.latest.mu.Unlock()
	c.latest.toWrite, c.latest.toRead = toWrite, toRead
}

type cutConn struct {
	net.Conn
	mu              sync.Mutex
	toWrite, toRead int
	wasCut          bool
}

// allow returns how many of n bytes may pass.
func (c *cutConn) allow(left *int, n int) (allowed int, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left < 0 {
		return n, false
	}
	allowed = min(*left, n)
	*left -= allowed
	c.wasCut = c.wasCut || *left == 0
	return allowed, *left == 0
}

var errCut = errors.New("cut")

func (c *cutConn) Write(p []byte) (int, error) {
	n, last := c.allow(&c.toWrite, len(p))
	n, err := c.Conn.Write(p[:n])
	if last {
		_ = c.Close()
		err = errCut
	}
	return n, err
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	allowed, last := c.allow(&c.toRead, n)
	if last {
		_ = c.Close()
		return allowed, errCut
	}
	return allowed, err
}

// TestNothingIsLostOrDoubledWhereverTheConnectionBreaks breaks the connection at
// every byte of every request that changes something, and of its answer (DUP-4).
// No operation has a key, and none may fail.
func TestNothingIsLostOrDoubledWhereverTheConnectionBreaks(t *testing.T) {
	for _, direction := range []string{"request", "answer"} {
		t.Run(direction, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, membox.New(nil), oapapi.Options{})
				cut := &cutter{daemon: d}
				r := newRemote(t, d, remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: cut.dial}))
				cuts := 0
				for after := 0; ; after++ {
					n := breakAt(t, cut, r, direction, after)
					cuts += n
					if n == 0 { // the budget was never used up
						break
					}
				}
				t.Logf("%d operations, each cut at another byte", cuts)
				if cuts < 300 {
					t.Errorf("only %d cuts", cuts)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// breakAt does every operation with a connection that breaks after so many bytes,
// and returns how often it did.
func breakAt(t *testing.T, cut *cutter, r *remote, direction string, after int) (cuts int) {
	t.Helper()
	ctx := t.Context()
	q, err := r.OpenQueue(ctx, fmt.Sprint("queue ", after))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	try := func(what string, want driver.Stats, do func() error) {
		t.Helper()
		if _, err := q.Stats(ctx); err != nil { // the connection is there, and knows the queue
			t.Fatal(err)
		}
		synctest.Wait()
		victim := cut.latest
		if direction == "request" {
			cut.cutAfter(after, -1)
		} else {
			cut.cutAfter(-1, after)
		}
		if err := do(); err != nil {
			t.Errorf("%s, cut after %d bytes of the %s: %v", what, after, direction, err)
		}
		victim.mu.Lock()
		if victim.wasCut {
			cuts++
		}
		victim.mu.Unlock()
		cut.cutAfter(-1, -1)
		if got, err := q.Stats(ctx); err != nil || got != want {
			t.Fatalf("%s, cut after %d bytes of the %s: left %+v, %v; want %+v", what, after, direction, got, err, want)
		}
	}
	hold := driver.ReceiveRequest{Max: 4, Visibility: time.Hour}
	batch := []driver.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}, {Body: []byte("c")}, {Body: []byte("d")}}
	var got []driver.Delivery
	try("send", driver.Stats{Ready: 4}, func() error { _, err := q.Send(ctx, batch); return err })
	if got, err = q.Receive(ctx, hold); err != nil || len(got) != 4 {
		t.Fatal(got, err)
	}
	try("ack", driver.Stats{InFlight: 3}, func() error { return q.Ack(ctx, []driver.Receipt{got[0].Receipt}) })
	try("nack", driver.Stats{InFlight: 2, Ready: 1}, func() error { return q.Nack(ctx, []driver.Nack{{Receipt: got[1].Receipt}}) })
	try("extend", driver.Stats{InFlight: 1, Ready: 2}, func() error {
		_, err := q.Extend(ctx, []driver.Extension{{Receipt: got[2].Receipt}})
		return err
	})
	try("dead-letter", driver.Stats{Ready: 2, Dead: 1}, func() error {
		return q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: got[3].Receipt, Reason: driver.ReasonFatal}})
	})
	try("redrive", driver.Stats{Ready: 3}, func() error {
		if n, err := q.Redrive(ctx, nil, 1); err != nil || n != 1 {
			return fmt.Errorf("moved %d: %w", n, err)
		}
		return nil
	})
	try("purge", driver.Stats{}, func() error {
		if n, err := q.Purge(ctx); err != nil || n != 3 {
			return fmt.Errorf("removed %d: %w", n, err)
		}
		return nil
	})
	return cuts
}

// slow is a backend whose sends take a while.
type slow struct {
	*membox.Backend
	pause func()
}

func (s slow) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := s.Backend.OpenQueue(ctx, name)
	return slowQueue{q, s.pause}, err
}

type slowQueue struct {
	driver.Queue
	pause func()
}

func (q slowQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	q.pause()
	return q.Queue.Send(ctx, msgs)
}

func (q slowQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	err := q.Queue.Ack(ctx, receipts)
	q.pause()
	return err
}

// TestARepeatWaitsForTheFirst loses a connection while its send is being done:
// the repeat comes while the first is under way, and gets its answer.
func TestARepeatWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, slow{membox.New(nil), func() { time.Sleep(time.Second) }}, oapapi.Options{})
		cut := &cutter{daemon: d}
		r := newRemote(t, d, remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: cut.dial}))
		defer r.Close()
		q, err := r.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(500 * time.Millisecond)
			_ = cut.latest.Close()
		}()
		start := time.Now()
		sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}})
		if err != nil || len(sent) != 1 {
			t.Fatal(sent, err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v: the first send is done after a second", took)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Hour})
		if err != nil || len(got) != 1 || got[0].ID != sent[0].ID {
			t.Errorf("got %v, %v; want only %v", got, err, sent)
		}
	})
}

// replaceDaemon puts another process in the place of the daemon, in half a second.
func (c *cutter) replaceDaemon() {
	<-time.After(500 * time.Millisecond)
	c.mu.Lock()
	old, latest := c.daemon, c.latest
	c.daemon = &daemon{server: oapapi.New(oapapi.Options{Broker: old.broker}), broker: old.broker}
	c.mu.Unlock()
	_ = latest.Close()
	_ = old.server.Close()
}

// TestAckThatAnotherProcessFindsDoneIsUnknown loses the daemon after an ack was done and before its
// answer. The repeated one finds no delivery, which does not mean that the message comes again. That
// holds too if the connection to the other process breaks, and its answer comes on a third one.
func TestAckThatAnotherProcessFindsDoneIsUnknown(t *testing.T) {
	for name, disturb := range map[string]func(*cutter){
		"another process": (*cutter).replaceDaemon,
		"another process, and another connection to it": func(c *cutter) {
			c.replaceDaemon()
			<-time.After(500 * time.Millisecond)
			c.mu.Lock()
			defer c.mu.Unlock()
			_ = c.latest.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { expectUnknownAck(t, disturb) })
		})
	}
}

// expectUnknownAck acks a message while disturb runs.
func expectUnknownAck(t *testing.T, disturb func(*cutter)) {
	t.Helper()
	backend := membox.New(nil)
	pause := time.Duration(0)
	cut := &cutter{daemon: newDaemon(t, slow{backend, func() { <-time.After(pause) }}, oapapi.Options{})}
	client := remotebox.New([]string{"pipe"}, cut.daemon.token, &remotebox.Options{Dial: cut.dial})
	defer client.Close()
	q, err := client.OpenQueue(t.Context(), "orders")
	if err == nil {
		_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	pause = time.Second
	go disturb(cut)
	receipts := []driver.Receipt{got[0].Receipt}
	if err := q.Ack(t.Context(), receipts); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrReceiptExpired) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if err := q.Ack(t.Context(), receipts); !errors.Is(err, driver.ErrReceiptExpired) {
		t.Errorf("the next ack: got %v, want ErrReceiptExpired", err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	_ = cut.daemon.server.Close()
	_ = backend.Close()
}

// TestASendToAnotherProcessIsNotRepeatedOnAGuess loses the daemon while a send is
// under way. Whether it was done is unknown, and with a key it does not matter.
func TestASendToAnotherProcessIsNotRepeatedOnAGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		first := newDaemon(t, slow{backend, func() { time.Sleep(time.Second) }}, oapapi.Options{})
		cut := &cutter{daemon: first}
		client := remotebox.New([]string{"pipe"}, first.token, &remotebox.Options{Dial: cut.dial})
		defer client.Close()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		restart := cut.replaceDaemon
		go restart()
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a send without a key: got %v, want ErrUnavailable", err)
		}
		time.Sleep(10 * time.Second)
		go restart()
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("b"), DedupKey: "b"}}); err != nil {
			t.Errorf("a send with a key: %v", err)
		}
		if stats, err := q.Stats(t.Context()); err != nil || stats.Ready != 2 {
			t.Errorf("got %+v, %v; want a and b, each once", stats, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		_ = cut.daemon.server.Close()
		_ = backend.Close()
	})
}
