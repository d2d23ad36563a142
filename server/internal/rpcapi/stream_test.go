package rpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// withDaemon runs a test with a daemon on the memory backend, in virtual time.
func withDaemon(t *testing.T, test func(t *testing.T, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, memoryDaemon(t)) })
}

// memoryDaemon returns a daemon that has the queue "orders".
func memoryDaemon(t *testing.T) *daemon {
	t.Helper()
	backend := membox.New(nil)
	if _, err := backend.OpenQueue(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	return newDaemon(t, backend, broker.Limits{MinVisibility: 250 * time.Millisecond})
}

type stream = connect.BidiStreamForClientSimple[mailboxv1.RecvStreamRequest, mailboxv1.RecvStreamResponse]

// openStream opens a stream on the queue "orders".
func openStream(ctx context.Context, t *testing.T, rpc mailboxv1connect.MailboxClient, first *mailboxv1.RecvStreamRequest) *stream {
	t.Helper()
	s, err := rpc.RecvStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first.Topic = "orders"
	if first.VisibilityMs == nil {
		first.VisibilityMs = proto.Float64(60_000)
	}
	if err := s.Send(first); err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t *testing.T, rpc mailboxv1connect.MailboxClient, n int) {
	t.Helper()
	r := &mailboxv1.SendRequest{Topic: "orders", Keyless: true}
	for i := range n {
		r.Messages = append(r.Messages, &mailboxv1.Outgoing{Payload: fmt.Append(nil, i)})
	}
	if _, err := rpc.Send(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// take receives until it has n messages, and checks that they come in order.
func take(t *testing.T, s *stream, from, n int) []*mailboxv1.Delivery {
	t.Helper()
	var got []*mailboxv1.Delivery
	for len(got) < n {
		response, err := s.Receive()
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(got), n, err)
		}
		got = append(got, response.GetMessages()...)
	}
	for i, d := range got {
		if want := fmt.Sprint(from + i); string(d.GetPayload()) != want {
			t.Fatalf("got payload %q, want %q", d.GetPayload(), want)
		}
	}
	if len(got) != n {
		t.Fatalf("got %d messages, want %d", len(got), n)
	}
	return got
}

func stats(t *testing.T, rpc mailboxv1connect.MailboxClient) driver.Stats {
	t.Helper()
	r, err := rpc.Stats(t.Context(), &mailboxv1.StatsRequest{Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	return driver.Stats{Ready: int(r.GetReady()), Delayed: int(r.GetDelayed()), InFlight: int(r.GetInFlight()), Dead: int(r.GetDead())}
}

func TestStreamNeverExceedsItsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memoryDaemon(t)
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		send(t, rpc, 10)
		s := openStream(t.Context(), t, rpc, &mailboxv1.RecvStreamRequest{Credit: 3})
		take(t, s, 0, 3)
		time.Sleep(30 * time.Second)
		if got := stats(t, rpc); got.InFlight != 3 || got.Ready != 7 {
			t.Errorf("with a credit of 3 there are %+v", got)
		}
		if err := s.Send(&mailboxv1.RecvStreamRequest{Credit: 2}); err != nil {
			t.Fatal(err)
		}
		take(t, s, 3, 2)
		if err := s.Send(&mailboxv1.RecvStreamRequest{Stop: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("after stop: %v", err)
		}
		if got := stats(t, rpc); got.InFlight != 5 || got.Ready != 5 {
			t.Errorf("after a credit of 5 there are %+v", got)
		}
	})
}

func TestHalfClosedStreamEndsAfterItsCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memoryDaemon(t)
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		s := openStream(t.Context(), t, rpc, &mailboxv1.RecvStreamRequest{Credit: 2})
		if err := s.CloseRequest(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // longer than any wait of the server
		send(t, rpc, 3)
		take(t, s, 0, 2)
		if _, err := s.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("after the credit: %v", err)
		}
	})
}

func TestIdleStreamEndsInTime(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		began := time.Now()
		s := openStream(t.Context(), t, rpc, &mailboxv1.RecvStreamRequest{Credit: 2, IdleMs: 90_000})
		if _, err := s.Receive(); !errors.Is(err, io.EOF) || time.Since(began) != 90*time.Second {
			t.Errorf("ended with %v after %v", err, time.Since(began))
		}
	})
}

func TestCancelledStreamReturnsUndeliveredMessages(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		big := &mailboxv1.SendRequest{Topic: "orders", Keyless: true}
		for range 2 { // more than the windows of HTTP/2 hold
			big.Messages = append(big.Messages, &mailboxv1.Outgoing{Payload: make([]byte, 400<<10)})
		}
		for range 20 {
			if _, err := rpc.Send(t.Context(), big); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := openStream(ctx, t, rpc, &mailboxv1.RecvStreamRequest{Credit: 40, VisibilityMs: proto.Float64(3_600_000)})
		synctest.Wait() // the client reads nothing, so the stream is stuck in the middle
		before := stats(t, rpc)
		cancel()
		_ = s.CloseResponse() // the client's library notices now
		synctest.Wait()
		after := stats(t, rpc)
		if before.InFlight == 0 || before.Ready == 0 || after.Ready <= before.Ready {
			t.Errorf("before the client left there were %+v, after it %+v", before, after)
		}
	})
}

func TestUnreadStreamEndsAndReturnsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memoryDaemon(t)
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		for range 20 {
			big := &mailboxv1.Outgoing{Payload: make([]byte, 600<<10)}
			if _, err := rpc.Send(t.Context(), &mailboxv1.SendRequest{Topic: "orders", Keyless: true, Messages: []*mailboxv1.Outgoing{big}}); err != nil {
				t.Fatal(err)
			}
		}
		openStream(t.Context(), t, rpc, &mailboxv1.RecvStreamRequest{Credit: 20, VisibilityMs: proto.Float64(3_600_000)})
		synctest.Wait()
		before := stats(t, rpc)
		time.Sleep(10 * time.Second) // longer than the server's patience
		if after := stats(t, rpc); after.Ready <= before.Ready {
			t.Errorf("first there were %+v, then %+v", before, after)
		}
	})
}

func TestExpiredTokenEndsItsStream(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		token, err := d.ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s := openStream(t.Context(), t, d.rpc(token, connect.WithGRPC()), &mailboxv1.RecvStreamRequest{Credit: 2})
		_, err = s.Receive()
		if connect.CodeOf(err) != connect.CodeUnauthenticated || time.Since(began) > 90*time.Second {
			t.Errorf("a stream with a token that has expired ended with %v after %v", err, time.Since(began))
		}
	})
}

func TestDrainingEndsStreams(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		waitsForCredit := openStream(t.Context(), t, rpc, &mailboxv1.RecvStreamRequest{})
		waitsForMessages := openStream(t.Context(), t, rpc, &mailboxv1.RecvStreamRequest{Credit: 1})
		synctest.Wait()
		began := time.Now()
		d.broker.SetState(broker.StateSettling)
		d.handler.Drain()
		d.handler.Drain() // twice is fine
		for _, s := range []*stream{waitsForCredit, waitsForMessages} {
			_, err := s.Receive()
			if detail := detailOf(err); detail.GetCode() != "E_UNAVAILABLE" || detail.GetRetryAfterMs() <= 0 {
				t.Errorf("the stream ended with %v", err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestInvalidRequestEndsStream(t *testing.T) {
	for name, requests := range map[string][]*mailboxv1.RecvStreamRequest{
		"credit":        {{Credit: -1}},
		"idle_ms":       {{IdleMs: -1}},
		"more than":     {{Credit: 60_000}, {Credit: 60_000}},
		"first request": {{}, {Topic: "other"}},
		"Visibility":    {{Credit: 1, VisibilityMs: proto.Float64(249)}},
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, d *daemon) {
				s := openStream(t.Context(), t, d.rpc(d.mint(t, ""), connect.WithGRPC()), requests[0])
				for _, r := range requests[1:] {
					_ = s.Send(r) // if it fails, the stream has ended
				}
				_, err := s.Receive()
				if detail := detailOf(err); detail.GetCode() != "E_SCHEMA" {
					t.Errorf("ended with %v, %v", err, detail)
				}
			})
		})
	}
}
