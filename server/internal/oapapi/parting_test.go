package oapapi_test

import (
	"context"
	"errors"
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

// The connection ends in the moment in which messages arrive for the receives that wait on
// it.
func TestMessagesForGoneClientReturnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
				got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Minute})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %d messages, %v", len(got), err)
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
		if stats, err := direct.Stats(t.Context()); err != nil || stats != (driver.Stats{Ready: 2}) {
			t.Errorf("left %+v, %v", stats, err)
		}
		cancel()
		waiting.Wait()
		_ = client.Close()
		d.stop(t)
	})
}
