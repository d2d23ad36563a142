package rpcapi_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/capability"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestWatchStreamsThroughEveryProtocol(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		rpc := d.rpc(d.mint(t, ""), protocol)
		send(t, rpc, 2)
		stream, err := rpc.Watch(t.Context(), &mailboxv1.WatchRequest{Queues: []string{"orders"}, EveryMs: 500})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		next := func() *mailboxv1.WatchResponse {
			t.Helper()
			if !stream.Receive() {
				t.Fatal(stream.Err())
			}
			return stream.Msg()
		}
		began := time.Now()
		if m := next(); len(m.GetQueues()) != 1 || m.GetQueues()[0].GetTopic() != "orders" || m.GetQueues()[0].GetReady() != 2 || time.Since(began) > time.Second {
			t.Errorf("first %v", m)
		}
		for range 3 {
			if m := next(); len(m.GetQueues()) > 0 || m.GetAt() == nil {
				t.Errorf("without a change: %v", m)
			}
		}
		send(t, rpc, 5)
		if m := next(); len(m.GetQueues()) != 1 || m.GetQueues()[0].GetReady() != 7 || m.GetQueues()[0].GetPerSecond().GetSent() == 0 {
			t.Errorf("after a send: %v", m)
		}
	})
}

// TestWatchOfRPCEndsWithReason is CAP-3 and SVC-9.
func TestWatchOfRPCEndsWithReason(t *testing.T) {
	for name, want := range map[string]struct {
		status connect.Code
		code   string
	}{
		"expired": {connect.CodeUnauthenticated, "E_CAP_AUTH"}, "drain": {connect.CodeUnavailable, "E_UNAVAILABLE"},
		"other operation": {connect.CodePermissionDenied, "E_CAP_SCOPE"}, "no such queue": {connect.CodeNotFound, "E_NOT_FOUND"}, "no queue": {connect.CodeInvalidArgument, "E_SCHEMA"},
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, d *daemon) {
				operation, queues := capability.OpStats, []string{"orders"}
				switch name {
				case "other operation":
					operation = capability.OpRecv
				case "no such queue":
					queues = []string{"nowhere"}
				case "no queue":
					queues = nil
				}
				token, err := d.ring.Mint("", capability.Operations(operation), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Minute)))
				if err != nil {
					t.Fatal(err)
				}
				stream, err := d.rpc(token, connect.WithGRPC()).Watch(t.Context(), &mailboxv1.WatchRequest{Queues: queues})
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				if name == "drain" {
					stream.Receive()
					d.broker.SetState(broker.StateSettling)
				}
				for stream.Receive() {
				}
				if detail := detailOf(stream.Err()); connect.CodeOf(stream.Err()) != want.status || detail.GetCode() != want.code || detail.GetCorrId() == "" {
					t.Errorf("got %v with %v", stream.Err(), detail)
				}
			})
		})
	}
}

// TestManyWatchesFitIntoRequestMemory: a stream that has begun holds no memory for its request.
func TestManyWatchesFitIntoRequestMemory(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		for range 50 {
			stream, err := rpc.Watch(t.Context(), &mailboxv1.WatchRequest{Queues: []string{"orders"}})
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			stream.Receive()
		}
		for _, s := range d.broker.Shares() {
			if s.Resource == "request memory" && s.Used > 0 {
				t.Errorf("50 watches hold %d bytes", s.Used)
			}
			if s.Resource == "watched queues" && s.Used != 50 {
				t.Errorf("50 watches hold %d units", s.Used)
			}
		}
	})
}

func TestHistoryIsThatOfHTTP(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		for n := range 3 {
			send(t, rpc, 2)
			d.broker.Sample(t.Context(), time.Now().Add(time.Duration(n)*broker.HistoryEvery))
		}
		for limit, want := range map[int32]int{0: 3, 2: 2} {
			history, err := rpc.History(t.Context(), &mailboxv1.HistoryRequest{Topic: "orders", Limit: limit})
			if err != nil || history.GetEveryMs() != 10_000 || len(history.GetPoints()) != want {
				t.Fatalf("limit %d: %v, %v", limit, history, err)
			}
			if last := history.GetPoints()[want-1]; last.GetReady() != 6 || last.GetSent() != 2 {
				t.Errorf("limit %d: the newest is %v", limit, last)
			}
		}
		_, err := rpc.History(t.Context(), &mailboxv1.HistoryRequest{Topic: "orders", Limit: -1})
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a limit below 0: %v", err)
		}
	})
}
