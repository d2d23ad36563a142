package oapapi_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// plainConn is a connection to a daemon that does not know OPEN IDENTIFIED.
type plainConn struct{ net.Conn }

func (c plainConn) Write(frames []byte) (int, error) {
	frames = slices.Clone(frames)
	for rest := frames; len(rest) > 10; rest = rest[binary.BigEndian.Uint32(rest):] {
		if binary.BigEndian.Uint16(rest[8:]) == oap.OpOpenIdentified {
			binary.BigEndian.PutUint16(rest[8:], 0x7f)
		}
	}
	return c.Conn.Write(frames)
}

// plainClient returns a client that opens queues by their names alone, as earlier ones do.
func (d *daemon) plainClient() *remotebox.Backend {
	return remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		nc, err := d.pipe(ctx, address)
		return plainConn{nc}, err
	}})
}

// moving is a client whose connections go to the daemon of the moment.
type moving struct {
	mu     sync.Mutex
	daemon *daemon
	nc     net.Conn
}

func (m *moving) dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	nc, err := m.daemon.pipe(ctx, address)
	m.nc = nc
	return nc, err
}

// to cuts the connection; the next one is to d.
func (m *moving) to(d *daemon) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.nc.Close()
	m.daemon = d
}

// again deletes the queue and creates one with a message.
func again(t *testing.T, backend driver.Opener) {
	t.Helper()
	if err := backend.(driver.Admin).DeleteQueue(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	q, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("new")}}); err != nil {
		t.Fatal(err)
	}
	_ = q.Close()
}

// send sends once more where the client has not yet seen that its connection was cut: it
// cannot know then whether the daemon has the message.
func send(t *testing.T, q driver.Queue, body string) error {
	t.Helper()
	_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte(body)}})
	if errors.Is(err, driver.ErrUnavailable) {
		_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte(body)}})
	}
	return err
}

func expectSent(t *testing.T, q driver.Queue, body string) {
	t.Helper()
	if err := send(t, q, body); err != nil {
		t.Fatalf("send %q: %v", body, err)
	}
}

func expectGone(t *testing.T, q driver.Queue) {
	t.Helper()
	if err := send(t, q, "lost"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("send: %v, want ErrNotFound", err)
	}
	if got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute}); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("receive: %d messages, %v, want ErrNotFound", len(got), err)
	}
}

func open(t *testing.T, b driver.Opener) driver.Queue {
	t.Helper()
	q, err := b.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestHandleStaysOnDeletedQueueAfterReconnect(t *testing.T) {
	for _, created := range []bool{true, false} { // when the handle is opened
		synctest.Test(t, func(t *testing.T) {
			backend := membox.New(nil)
			d := newDaemon(t, backend, oapapi.Options{})
			defer d.stop(t)
			if created {
				d.make(t, "orders")
			}
			m := &moving{daemon: d}
			client := remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Dial: m.dial})
			defer client.Close()
			q := open(t, client)
			expectSent(t, q, "a")
			m.to(d)
			expectSent(t, q, "b")
			again(t, backend)
			expectGone(t, q)
			m.to(d)
			expectGone(t, q)
			next := open(t, client)
			if stats, err := next.Stats(t.Context()); err != nil || stats.Ready != 1 {
				t.Errorf("the new queue: %+v, %v", stats, err)
			}
			expectGone(t, q)
		})
	}
}

// TestHandleIsOnQueueThatOthersCreate has a receiver open a queue before a sender makes it.
func TestHandleIsOnQueueThatOthersCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		d := newDaemon(t, backend, oapapi.Options{})
		defer d.stop(t)
		client := d.client()
		defer client.Close()
		q := open(t, client)
		expectReceived := func(want int) {
			t.Helper()
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
			if err != nil || len(got) != want {
				t.Errorf("got %d messages, %v, want %d", len(got), err, want)
			}
		}
		d.make(t, "orders")
		expectReceived(0)
		again(t, backend)
		expectGone(t, q)
		if names := queues(t, client); len(names) != 1 {
			t.Errorf("queues: %q", names)
		}
		if err := backend.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		expectGone(t, q)
		if names := queues(t, client); len(names) != 0 {
			t.Errorf("a send through a handle on a deleted queue has created %q", names)
		}
	})
}

func queues(t *testing.T, admin driver.Admin) (names []string) {
	t.Helper()
	for name, err := range admin.Queues(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestHandleOutlivesDaemonInMemory restarts a daemon whose queues end with it: they were
// not deleted, so the handle makes the queue again.
func TestHandleOutlivesDaemonInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		token := mint(t, ring)
		first := newDaemonWith(t, membox.New(nil), oapapi.Options{}, ring, token)
		m := &moving{daemon: first}
		client := remotebox.New([]string{"pipe"}, token, &remotebox.Options{Dial: m.dial})
		defer client.Close()
		q := open(t, client)
		expectSent(t, q, "a")
		second := newDaemonWith(t, membox.New(nil), oapapi.Options{}, ring, token)
		defer second.stop(t)
		m.to(second)
		first.stop(t)
		expectSent(t, q, "b")
		again(t, second.backend)
		expectGone(t, q)
	})
}

func TestHandleStaysOnItsQueueOverRestart(t *testing.T) {
	ring, dir := keyring.New(keyring.NewKey()), t.TempDir()
	token := mint(t, ring)
	start := func() *daemon {
		disk, err := diskbox.Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return newDaemonWith(t, disk, oapapi.Options{}, ring, token)
	}
	d := start()
	m := &moving{daemon: d}
	client := remotebox.New([]string{"pipe"}, token, &remotebox.Options{Dial: m.dial})
	defer client.Close()
	q := open(t, client)
	expectSent(t, q, "a")
	restart := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		_ = m.nc.Close()
		d.stop(t)
		d = start()
		m.daemon = d
	}
	restart()
	expectSent(t, q, "b")
	again(t, d.backend)
	restart()
	expectGone(t, q)
	d.stop(t)
}

func TestHandleGoesByNameWithEarlierDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		d := newDaemon(t, backend, oapapi.Options{})
		defer d.stop(t)
		client := d.plainClient()
		defer client.Close()
		q := open(t, client)
		expectSent(t, q, "a")
		if err := client.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		d.make(t, "orders")
		expectSent(t, q, "b")
	})
}
