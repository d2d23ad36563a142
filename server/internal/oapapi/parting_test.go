package oapapi_test

import (
	"context"
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

// The tests in this file are about receives that wait together, and part.

func TestReceiveWaitsNoLongerThanItAsked(t *testing.T) {
	inOneConnection(t, func(t *testing.T, _ *daemon, q driver.Queue) {
		var all sync.WaitGroup
		for _, wait := range []time.Duration{time.Minute, time.Second, 10 * time.Second, 2 * time.Second} {
			all.Go(func() {
				began := time.Now()
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: wait})
				if took := time.Since(began); len(got) != 0 || err != nil || took != wait {
					t.Errorf("a receive that waits %v: %d messages after %v, %v", wait, len(got), took, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
}

// lateBackend has queues whose receives bring a message in the moment in which they are
// cancelled.
type lateBackend struct{ *membox.Backend }

func (b lateBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return lateQueue{q}, err
}

type lateQueue struct{ driver.Queue }

func (q lateQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if req.Wait > 0 {
		<-ctx.Done()
		req.Wait = 0
	}
	return q.Queue.Receive(context.WithoutCancel(ctx), req)
}

// line is a connection that is cut for good.
type line struct {
	daemon *daemon
	mu     sync.Mutex
	latest net.Conn
	dead   bool
}

func (l *line) dial(ctx context.Context, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, errCut
	}
	nc, err := l.daemon.pipe(ctx, address)
	l.latest = nc
	return nc, err
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	_ = l.latest.Close()
}

// TestMessagesForGoneClientReturnAtOnce: the connection ends in the moment in which messages arrive
// for what waits on it (FLOW-4).
func TestMessagesForGoneClientReturnAtOnce(t *testing.T) {
	for name, receive := range map[string]func(ctx context.Context, q driver.Queue) error{
		"receives": func(ctx context.Context, q driver.Queue) error {
			_, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Minute})
			return err
		},
		"subscriptions": func(ctx context.Context, q driver.Queue) error {
			for _, err := range q.(remotebox.Subscriber).Subscribe(ctx, time.Hour, 1) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { messagesForGoneClient(t, receive) })
		})
	}
}

func messagesForGoneClient(t *testing.T, receive func(ctx context.Context, q driver.Queue) error) {
	backend := membox.New(nil)
	d := newDaemon(t, lateBackend{backend}, oapapi.Options{})
	d.make(t, "orders")
	wire := &line{daemon: d}
	client := remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: wire.dial})
	q, err := client.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if err := receive(ctx, q); err == nil {
				t.Error("a client that has gone got a message")
			}
		})
	}
	synctest.Wait()
	direct, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}, {Body: []byte("b")}}); err != nil {
		t.Fatal(err)
	}
	wire.cut()
	synctest.Wait()
	got, err := direct.Receive(t.Context(), driver.ReceiveRequest{Max: 9, Visibility: time.Hour})
	if err != nil || len(got) != 2 {
		t.Errorf("%d messages are ready after the client has gone, want 2; %v", len(got), err)
	}
	for _, m := range got {
		if m.Deliveries != 1 {
			t.Errorf("a message that no client got is delivered for the %d. time", m.Deliveries)
		}
	}
	cancel()
	waiting.Wait()
	_ = client.Close()
	d.stop(t)
}
