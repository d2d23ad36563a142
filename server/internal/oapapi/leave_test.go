package oapapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// drained returns how long it takes to shut a daemon down that has a minute for it.
func drained(t *testing.T, d *daemon) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	if err := d.server.Shutdown(ctx); err != nil {
		t.Errorf("shut down: %v", err)
	}
	return time.Since(began)
}

func TestAnIdleClientDoesNotHoldUpADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		ring := keyring.New(keyring.NewKey())
		token := mint(t, ring)
		first, second := newDaemonWith(t, backend, oapapi.Options{}, ring, token), newDaemonWith(t, backend, oapapi.Options{}, ring, token)
		serving := first
		client := remotebox.New([]string{"pipe"}, token, &remotebox.Options{
			Dial: func(ctx context.Context, address string) (net.Conn, error) { return serving.pipe(ctx, address) },
		})
		defer func() {
			_ = client.Close()
			second.stop(t)
		}()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		send := func() {
			t.Helper()
			if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}}); err != nil {
				t.Errorf("send: %v", err)
			}
		}
		send()
		if took := drained(t, first); took > time.Second/2 {
			t.Errorf("nothing was under way, and the drain took %v", took)
		}
		serving = second // as when it is started again
		send()
		if stats, err := q.Stats(t.Context()); err != nil || stats.Ready != 2 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

func TestWhoHoldsMessagesCanSettleThemWhileTheDaemonDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), oapapi.Options{})
		defer d.stop(t)
		client := d.client()
		defer client.Close()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), make([]driver.Outgoing, 3)); err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 3, Visibility: 20 * time.Second})
		if err != nil || len(got) != 3 {
			t.Fatal(got, err)
		}
		go func() {
			time.Sleep(5 * time.Second) // the work that it does
			if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
				t.Errorf("ack: %v", err)
			}
			if _, err := q.Extend(t.Context(), []driver.Extension{{Receipt: got[1].Receipt, Visibility: 30 * time.Second}}); err != nil {
				t.Errorf("extend: %v", err)
			}
			time.Sleep(20 * time.Second) // got[2] is out no more
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[1].Receipt}}); err != nil {
				t.Errorf("nack: %v", err)
			}
			if err := q.Ack(t.Context(), []driver.Receipt{got[2].Receipt}); err == nil {
				t.Error("the ack of a lease that is over")
			}
		}()
		if took := drained(t, d); took < 25*time.Second || took > 26*time.Second {
			t.Errorf("the last message was settled after 25 s, and the drain took %v", took)
		}
	})
}

func TestAClientThatIgnoresTheDrainIsLeftBehind(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		silent := dialRaw(t, d) // shows no capability
		r := dialRaw(t, d)
		r.start()
		handle := r.open("orders")
		stopped := make(chan time.Duration, 1)
		go func() { stopped <- drained(t, d) }()
		for _, want := range []uint16{oap.EventDrain, oap.EventLeave} {
			if f := r.mustNext(); f.Flags != oap.Event || f.Code != want {
				t.Fatalf("got flags %#x, code %#x, want event %#x", uint16(f.Flags), f.Code, want)
			}
		}
		r.send(requestHeader(oap.OpStats, 5), nil, oap.AppendTarget(nil, oap.Target{Handle: handle}))
		if f := r.mustNext(); f.Code != oap.StatusOK {
			t.Errorf("a request that crosses the request to leave: status %d", f.Code)
		}
		if f := r.mustNext(); f.Code != oap.EventLeave {
			t.Errorf("got code %#x", f.Code)
		}
		for who, c := range map[string]*raw{"the client that was asked to leave": r, "the one without a capability": silent} {
			if _, err := c.next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", who, err)
			}
		}
		if took := <-stopped; took > 2*time.Second {
			t.Errorf("the drain took %v", took)
		}
	})
}
