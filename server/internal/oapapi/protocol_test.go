package oapapi_test

import (
	"encoding/base64"
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
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// raw is a client that says what it likes.
type raw struct {
	t      *testing.T
	net    net.Conn
	unread []byte
	token  []byte
	// written is closed when what was sent last is.
	written chan struct{}
}

// dialRaw connects to a daemon without a handshake.
func dialRaw(t *testing.T, d *daemon) *raw {
	t.Helper()
	nc, err := d.pipe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return newRaw(t, d, nc)
}

func newRaw(t *testing.T, d *daemon, nc net.Conn) *raw {
	t.Helper()
	token, err := base64Token(d.token)
	if err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, net: nc, token: token}
}

func base64Token(text string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(text) }

// write sends bytes, from another goroutine, because a pipe has no room. Each waits
// for the one before: who waits for the lock of a pipe is not at rest, and a server
// that is busy writing itself reads nothing.
func (r *raw) write(b []byte) {
	before, written := r.written, make(chan struct{})
	r.written = written
	go func() {
		defer close(written)
		if before != nil {
			<-before
		}
		_, _ = r.net.Write(b)
	}()
}

func (r *raw) send(h oap.Header, capability, payload []byte) {
	r.write(oap.AppendFrame(nil, &h, capability, payload))
}

// next returns the next frame, or the error of the connection.
func (r *raw) next() (oap.Frame, error) {
	for {
		f, rest, need, err := oap.Next(r.unread)
		if err != nil {
			r.t.Fatal(err)
		}
		if need == 0 {
			r.unread = rest
			return f, nil
		}
		buffer := make([]byte, 4096)
		n, err := r.net.Read(buffer)
		if err != nil {
			return oap.Frame{}, err
		}
		r.unread = append(r.unread, buffer[:n]...)
	}
}

func (r *raw) mustNext() oap.Frame {
	r.t.Helper()
	f, err := r.next()
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func startHeader() oap.Header {
	return oap.Header{Flags: oap.Request | oap.Start, Code: oap.OpStart, Protocol: oap.ProtocolMailbox, Correlation: 1}
}

func requestHeader(code uint16, correlation uint64) oap.Header {
	return oap.Header{Flags: oap.Request, Code: code, Protocol: oap.ProtocolMailbox, Correlation: correlation}
}

var startPayload = oap.AppendStart(nil, &oap.StartRequest{Version: oap.ProtocolVersion, Producer: [16]byte{1}})

// start shows the token.
func (r *raw) start() { r.startAs([16]byte{1}) }

// startAs starts the session of a producer.
func (r *raw) startAs(producer [16]byte) {
	r.t.Helper()
	r.send(startHeader(), r.token, oap.AppendStart(nil, &oap.StartRequest{Version: oap.ProtocolVersion, Producer: producer}))
	if f := r.mustNext(); f.Code != oap.StatusOK {
		r.t.Fatalf("start: status %d", f.Code)
	}
}

// open opens a queue.
func (r *raw) open(name string) uint32 {
	r.t.Helper()
	r.send(requestHeader(oap.OpOpen, 2), nil, oap.AppendName(nil, name))
	opened, err := oap.ParseOpened(r.mustNext().Payload)
	if err != nil {
		r.t.Fatal(err)
	}
	return opened.Handle
}

// inBubble runs a test with a daemon over memory, which has the queue "orders", in
// virtual time.
func inBubble(t *testing.T, options oapapi.Options, run func(t *testing.T, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), options)
		defer d.stop(t)
		d.make(t, "orders")
		run(t, d)
	})
}

// TestRestingConnectionServesRequests has requests of every size arrive on a connection that
// has given back its memory.
func TestRestingConnectionServesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), oapapi.Options{RestAfter: time.Second, IdleTimeout: time.Minute})
		defer d.stop(t)
		d.make(t, "orders")
		r := dialRaw(t, d)
		r.start()
		target := oap.Target{Handle: r.open("orders")}
		for _, size := range []int{0, 1, 64, 1 << 10, 200 << 10, 0} {
			time.Sleep(59 * time.Second)
			payload := oap.AppendOutgoing(oap.AppendSend(nil, target, 1), &driver.Outgoing{Body: make([]byte, size)})
			r.send(requestHeader(oap.OpSend, 3), nil, payload)
			if f := r.mustNext(); f.Code != oap.StatusOK {
				t.Fatalf("send of %d bytes: status %d", size, f.Code)
			}
		}
		time.Sleep(30 * time.Second)
		ping := oap.AppendFrame(nil, ptr(requestHeader(oap.OpPing, 4)), nil, nil)
		for i := range ping {
			r.write(ping[i : i+1])
			time.Sleep(time.Millisecond)
		}
		if f := r.mustNext(); f.Correlation != 4 || f.Code != oap.StatusOK {
			t.Errorf("ping in parts: status %d", f.Code)
		}
	})
}

func TestHelloIsAnsweredBeforeStart(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.send(oap.Header{Flags: oap.Request, Correlation: 9}, nil, nil)
		f := r.mustNext()
		hello, err := oap.ParseHello(f.Payload)
		if err != nil || f.Protocol != oap.ProtocolHello || f.Correlation != 9 || f.Code != oap.StatusOK {
			t.Fatalf("%+v, %v", f.Header, err)
		}
		if hello.MaxFrame != oap.MaxFrameBytes || hello.MaxInFlight == 0 || len(hello.Versions) != 1 {
			t.Errorf("got %+v", hello)
		}
		r.start()
	})
}

// TestBreachesOfTheProtocolEndTheConnection says each thing that must not be
// said, after START or before it (OAP-1).
func TestBreachesOfTheProtocolEndTheConnection(t *testing.T) {
	change := func(h oap.Header, change func(h *oap.Header)) oap.Header {
		change(&h)
		return h
	}
	ping := requestHeader(oap.OpPing, 3)
	tooLong := oap.AppendFrame(nil, &ping, nil, nil)
	tooLong[0] = 0xff
	for _, test := range []struct {
		name    string
		started bool
		frame   []byte
		status  uint16
	}{
		{"END without START", false, oap.AppendFrame(nil, &oap.Header{Flags: oap.Event | oap.End, Code: oap.EventGoodbye, Protocol: oap.ProtocolMailbox}, nil, nil), 400},
		{"a request before START", false, oap.AppendFrame(nil, &ping, nil, nil), 400},
		{"RESP before REQ", true, oap.AppendFrame(nil, ptr(change(ping, func(h *oap.Header) { h.Flags = oap.Response })), nil, nil), 400},
		{"a second START", true, oap.AppendFrame(nil, ptr(startHeader()), []byte("x"), startPayload), 400},
		{"an unknown flag", true, oap.AppendFrame(nil, ptr(change(ping, func(h *oap.Header) { h.Flags |= 1 << 9 })), nil, nil), 400},
		{"compression", true, oap.AppendFrame(nil, ptr(change(ping, func(h *oap.Header) { h.Flags |= oap.Compressed })), nil, nil), 400},
		{"a tenant", true, oap.AppendFrame(nil, ptr(change(ping, func(h *oap.Header) { h.Tenant[3] = 1 })), nil, nil), 400},
		{"another protocol", true, oap.AppendFrame(nil, ptr(change(ping, func(h *oap.Header) { h.Protocol = 7 })), nil, nil), 400},
		{"an unknown event", true, oap.AppendFrame(nil, ptr(change(ping, func(h *oap.Header) { h.Flags = oap.Event })), nil, nil), 400},
		{"a frame that is too long", true, tooLong, 413},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
				r := dialRaw(t, d)
				if test.started {
					r.start()
				}
				r.write(test.frame)
				f := r.mustNext()
				if f.Code != test.status || f.Flags != oap.Response|oap.End {
					t.Errorf("got status %d, flags %#x; want %d and END", f.Code, uint16(f.Flags), test.status)
				}
				code := driver.ErrInvalid
				if test.status == oap.StatusTooLarge {
					code = driver.ErrTooLarge
				}
				if e, err := oap.ParseError(f.Payload); err != nil || e.Code != code || e.Detail == "" {
					t.Errorf("got %+v, %v", e, err)
				}
				if _, err := r.next(); !errors.Is(err, io.EOF) {
					t.Errorf("then got %v, want the end of the connection", err)
				}
			})
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestCapabilitiesThatAreNotGoodAreRefused(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		other := keyring.New(keyring.NewKey())
		foreign, err := base64.RawURLEncoding.DecodeString(mint(t, other))
		if err != nil {
			t.Fatal(err)
		}
		for name, token := range map[string][]byte{"none": nil, "nonsense": []byte("nonsense"), "another ring's": foreign} {
			r := dialRaw(t, d)
			r.send(startHeader(), token, startPayload)
			f := r.mustNext()
			if f.Code != oap.StatusUnauthenticated || f.Flags&oap.End == 0 {
				t.Errorf("%s: status %d, flags %#x", name, f.Code, uint16(f.Flags))
			}
			if _, err := r.next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: the connection is still open: %v", name, err)
			}
		}
	})
}

func TestWhatARequestGetsWrongCostsOnlyTheRequest(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		handle := r.open("orders")
		for i, test := range []struct {
			code    uint16
			payload []byte
			status  uint16
		}{
			{0x7777, nil, oap.StatusUnsupported},
			{oap.OpStats, oap.AppendTarget(nil, oap.Target{Handle: 999}), oap.StatusUnavailable},
			{oap.OpStats, nil, oap.StatusInvalid},
			{oap.OpSend, append(oap.AppendSend(nil, oap.Target{Handle: handle}, 0), 1, 2, 3), oap.StatusInvalid},
			{oap.OpSend, oap.AppendSend(nil, oap.Target{Handle: handle}, 1<<40), oap.StatusInvalid},
			{oap.OpAck, append(oap.AppendAck(nil, oap.Target{Handle: handle}, nil), 0), oap.StatusInvalid},
			{oap.OpReceive, oap.AppendReceive(nil, handle, driver.ReceiveRequest{}), oap.StatusInvalid},
			{oap.OpPeek, oap.AppendTarget(nil, oap.Target{Handle: handle}), oap.StatusInvalid},
			{oap.OpOpen, oap.AppendName(nil, "a{b}"), oap.StatusInvalid},
			{oap.OpDelete, oap.AppendDelete(nil, oap.Ticket{}, "nowhere"), oap.StatusNotFound},
			{oap.OpStats, oap.AppendTarget(nil, oap.Target{Handle: handle}), oap.StatusOK},
		} {
			r.send(requestHeader(test.code, uint64(100+i)), nil, test.payload)
			if f := r.mustNext(); f.Code != test.status || f.Correlation != uint64(100+i) || f.Flags != oap.Response {
				t.Errorf("request %d: got status %d, want %d", i, f.Code, test.status)
			}
		}
	})
}

// TestSlowClientsLoseTheirConnection: what does not show a capability, or begins
// a frame and does not end it, does not stay; what waits for an answer does.
func TestSlowClientsLoseTheirConnection(t *testing.T) {
	options := oapapi.Options{HandshakeTimeout: time.Second, FrameTimeout: 2 * time.Second, IdleTimeout: time.Minute}
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), options)
		defer d.stop(t)
		expectEnd := func(what string, r *raw, after time.Duration) {
			t.Helper()
			began := time.Now()
			if _, err := r.next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: got %v", what, err)
			}
			if took := time.Since(began); took != after {
				t.Errorf("%s: the connection ended after %v, want %v", what, took, after)
			}
		}
		silent := dialRaw(t, d)
		expectEnd("nothing at all", silent, time.Second)

		dripping := dialRaw(t, d)
		go func() { // a byte now and then does not help
			for _, b := range oap.AppendFrame(nil, ptr(startHeader()), dripping.token, startPayload) {
				if _, err := dripping.net.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		expectEnd("a handshake in drips", dripping, time.Second)

		halfway := dialRaw(t, d)
		halfway.start()
		halfway.write(oap.AppendFrame(nil, ptr(requestHeader(oap.OpPing, 5)), nil, nil)[:20])
		expectEnd("half a frame", halfway, 2*time.Second)

		idle := dialRaw(t, d)
		idle.start()
		expectEnd("an idle connection", idle, time.Minute)

		d.make(t, "orders")
		waiting := dialRaw(t, d)
		waiting.start()
		handle := waiting.open("orders")
		waiting.send(requestHeader(oap.OpReceive, 7), nil, oap.AppendReceive(nil, handle, driver.ReceiveRequest{
			Max: 1, Visibility: time.Minute, Wait: time.Hour,
		}))
		began := time.Now()
		if f := waiting.mustNext(); f.Code != oap.StatusOK || time.Since(began) != time.Hour {
			t.Errorf("a receive that waits for an hour: status %d after %v", f.Code, time.Since(began))
		}
	})
}

func TestTooManyRequestsWithoutAnAnswerAreRefused(t *testing.T) {
	inBubble(t, oapapi.Options{MaxInFlight: 3}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		handle := r.open("orders")
		var frames []byte
		for i := range 4 {
			frames = oap.AppendFrame(frames, ptr(requestHeader(oap.OpReceive, uint64(10+i))), nil,
				oap.AppendReceive(nil, handle, driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Minute}))
		}
		r.write(frames)
		f := r.mustNext()
		if f.Code != oap.StatusFull || f.Correlation != 13 {
			t.Errorf("got status %d for request %d", f.Code, f.Correlation)
		}
		if e, err := oap.ParseError(f.Payload); err != nil || e.RetryAfter <= 0 {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

func TestTooManyConnectionsAreClosedAtOnce(t *testing.T) {
	inBubble(t, oapapi.Options{MaxConnections: 2}, func(t *testing.T, d *daemon) {
		first, second, third := dialRaw(t, d), dialRaw(t, d), dialRaw(t, d)
		first.start()
		second.start()
		if _, err := third.next(); !errors.Is(err, io.EOF) {
			t.Errorf("the third connection: %v", err)
		}
		if g := d.server.Gauges(); g.Connections != 2 || g.Refused != 1 {
			t.Errorf("got %+v", g)
		}
		_ = first.net.Close()
		synctest.Wait()
		fourth := dialRaw(t, d)
		fourth.start()
	})
}

// TestACancelledReceiveIsAnswered: with a status of its own if it got nothing.
func TestACancelledReceiveIsAnswered(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		handle := r.open("orders")
		receive := oap.AppendFrame(nil, ptr(requestHeader(oap.OpReceive, 10)), nil,
			oap.AppendReceive(nil, handle, driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour}))
		cancel := oap.AppendFrame(nil, &oap.Header{
			Flags: oap.Event, Code: oap.EventCancel, Protocol: oap.ProtocolMailbox, Correlation: 10,
		}, nil, nil)
		r.write(append(receive, cancel...)) // in one piece: the cancel must not overtake
		began := time.Now()
		if f := r.mustNext(); f.Code != oap.StatusCancelled || f.Correlation != 10 || time.Since(began) != 0 {
			t.Errorf("got status %d after %v", f.Code, time.Since(began))
		}
	})
}

// TestFirstSendCreatesQueueOpenedWhileAbsent holds that opening and receiving make
// nothing, and that a handle refuses once its queue was there and is gone.
func TestFirstSendCreatesQueueOpenedWhileAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), oapapi.Options{})
		client := d.client()
		defer func() {
			_ = client.Close()
			d.stop(t)
		}()
		q, err := client.OpenQueue(t.Context(), "typo")
		if err != nil {
			t.Fatal(err)
		}
		receive := func(wait time.Duration) (int, error) {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: wait})
			return len(got), err
		}
		for _, wait := range []time.Duration{0, time.Hour} {
			began := time.Now()
			if _, err := receive(wait); !errors.Is(err, driver.ErrNotFound) || time.Since(began) != 0 {
				t.Errorf("receive with a wait of %v: %v after %v", wait, err, time.Since(began))
			}
		}
		for name := range client.Queues(t.Context()) {
			t.Errorf("there is a queue %q", name)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		if n, err := receive(0); n != 1 || err != nil {
			t.Errorf("after the send: %d messages, %v", n, err)
		}
		if err := client.DeleteQueue(t.Context(), "typo"); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}}); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("sending to a queue that was deleted: %v", err)
		}
	})
}

func TestPlainAttributeLimitsAreThoseOfDaemon(t *testing.T) {
	if oap.PlainMaxAttributes != broker.MaxAttributes || oap.PlainMaxAttributeBytes != broker.MaxAttributeBytes {
		t.Errorf("%d and %d bytes, the daemon takes %d and %d bytes",
			oap.PlainMaxAttributes, oap.PlainMaxAttributeBytes, broker.MaxAttributes, broker.MaxAttributeBytes)
	}
}
