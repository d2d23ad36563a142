package oapapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
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

// TestClientsGoElsewhereWhenADaemonDrains takes one of two daemons in front of
// one backend down while a client works: nothing it does may fail.
func TestClientsGoElsewhereWhenADaemonDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		ring := keyring.New(keyring.NewKey())
		token := mint(t, ring)
		daemons := map[string]*daemon{
			"first":  newDaemonWith(t, backend, oapapi.Options{}, ring, token),
			"second": newDaemonWith(t, backend, oapapi.Options{}, ring, token),
		}
		client := remotebox.New([]string{"first", "second"}, token, &remotebox.Options{
			Dial: func(ctx context.Context, address string) (net.Conn, error) {
				return daemons[address].pipe(ctx, address)
			},
		})
		daemons["first"].make(t, "orders")
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan []driver.Delivery, 1)
		go func() {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Hour})
			if err != nil {
				t.Errorf("a receive that waits while the daemon drains: %v", err)
			}
			waiting <- got
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := daemons["first"].server.Shutdown(ctx); err != nil {
			t.Errorf("shut down: %v", err)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
			t.Errorf("send after the daemon is gone: %v", err)
		}
		got := <-waiting
		if len(got) != 1 || string(got[0].Body) != "a" {
			t.Fatalf("got %v", got)
		}
		if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
			t.Errorf("ack with a receipt, through the other daemon: %v", err)
		}
		if g := daemons["second"].server.Gauges(); g.Connections != 1 {
			t.Errorf("the second daemon has %d connections", g.Connections)
		}
		_ = client.Close()
		_ = daemons["second"].server.Close()
		_ = backend.Close()
	})
}

// TestADrainingDaemonTakesNoMessagesAndLetsThemBeSettled says both on a connection
// that stays.
func TestADrainingDaemonTakesNoMessagesAndLetsThemBeSettled(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		handle := r.open("orders")
		send := oap.AppendSend(nil, oap.Target{Handle: handle}, 1)
		send = oap.AppendOutgoing(send, &driver.Outgoing{Body: []byte("a")})
		r.send(requestHeader(oap.OpSend, 3), nil, send)
		if f := r.mustNext(); f.Code != oap.StatusOK {
			t.Fatalf("send: status %d", f.Code)
		}
		stopped := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { stopped <- d.server.Shutdown(ctx) }()
		if f := r.mustNext(); f.Flags != oap.Event || f.Code != oap.EventDrain {
			t.Fatalf("got flags %#x, code %#x", uint16(f.Flags), f.Code)
		}
		r.send(requestHeader(oap.OpSend, 4), nil, send)
		if f := r.mustNext(); f.Code != oap.StatusElsewhere {
			t.Errorf("send to a draining daemon: status %d", f.Code)
		}
		receive := driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Hour}
		r.send(requestHeader(oap.OpReceive, 5), nil, oap.AppendReceive(nil, handle, receive))
		got, err := oap.ParseDeliveries(r.mustNext().Payload, nil)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		r.send(requestHeader(oap.OpReceive, 6), nil, oap.AppendReceive(nil, handle, receive))
		if f := r.mustNext(); f.Code != oap.StatusElsewhere {
			t.Errorf("a receive that would wait: status %d", f.Code)
		}
		r.send(requestHeader(oap.OpAck, 7), nil, oap.AppendAck(nil, oap.Target{Handle: handle}, []driver.Receipt{got[0].Receipt}))
		if f := r.mustNext(); f.Code != oap.StatusOK || string(f.Payload) != "\x00" {
			t.Errorf("ack on a draining daemon: status %d, %x", f.Code, f.Payload)
		}
		r.send(oap.Header{Flags: oap.Event | oap.End, Code: oap.EventGoodbye, Protocol: oap.ProtocolMailbox}, nil, nil)
		if err := <-stopped; err != nil {
			t.Errorf("shut down: %v", err)
		}
	})
}

func TestSubscriptionsPushWithinTheirCredit(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		client := d.client()
		defer client.Close()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		var out []driver.Outgoing
		for i := range 100 {
			out = append(out, driver.Outgoing{Body: fmt.Append(nil, i)})
		}
		if _, err := q.Send(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		next := 0
		for m, err := range q.(remotebox.Subscriber).Subscribe(t.Context(), time.Hour, 10) {
			if err != nil {
				t.Fatal(err)
			}
			if string(m.Body) != fmt.Sprint(next) {
				t.Fatalf("got %s, want %d", m.Body, next)
			}
			synctest.Wait()
			if stats, _ := q.Stats(t.Context()); stats.InFlight > 20 {
				t.Fatalf("%d messages are out", stats.InFlight)
			}
			if err := q.Ack(t.Context(), []driver.Receipt{m.Receipt}); err != nil {
				t.Fatal(err)
			}
			if next++; next == 50 {
				break
			}
		}
		synctest.Wait() // what was on its way goes back to its place
		if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{Ready: 50}) {
			t.Errorf("left %+v, %v", stats, err)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: time.Hour})
		if err != nil || len(got) != 50 || string(got[0].Body) != "50" || string(got[49].Body) != "99" {
			t.Errorf("got %d messages, %v", len(got), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, err := range q.(remotebox.Subscriber).Subscribe(ctx, time.Hour, 10) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// TestTenThousandIdleConnectionsDoNotHurtOthers prints what they cost.
func TestTenThousandIdleConnectionsDoNotHurtOthers(t *testing.T) {
	const connections = 10_000
	d := newDaemon(t, membox.New(nil), oapapi.Options{})
	defer d.stop(t)
	before := heapAndStacks()
	token, _ := base64Token(d.token)
	start := oap.AppendFrame(nil, ptr(startHeader()), token, startPayload)
	idle := make([]net.Conn, connections)
	buffer := make([]byte, 256)
	for i := range idle {
		nc, err := d.pipe(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		idle[i] = nc
		if _, err := nc.Write(start); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
	each := max(0, heapAndStacks()-before) / connections // what earlier tests left may have gone meanwhile
	client := d.client()
	defer client.Close()
	q, err := client.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 100 {
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d idle connections of %d bytes each, and a send takes %v", connections, each, time.Since(began)/100)
	if each > 24<<10 {
		t.Errorf("an idle connection costs %d bytes", each)
	}
	for _, nc := range idle {
		_ = nc.Close()
	}
}

func heapAndStacks() int {
	runtime.GC()
	runtime.GC() // what pools keep goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// TestDrainLeavesRoundToReader drains while clients send parts of frames, after which the
// reader ends its round. The race detector finds another goroutine that adds to the round.
func TestDrainLeavesRoundToReader(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		for range 20 {
			r := dialRaw(t, d)
			r.start()
			h := requestHeader(oap.OpPing, 2)
			for _, b := range oap.AppendFrame(nil, &h, nil, nil) {
				r.write([]byte{b})
			}
			go func() { _, _ = io.Copy(io.Discard, r.net) }()
		}
		if err := d.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
