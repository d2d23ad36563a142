package rpcapi_test

import (
	"strings"
	"testing"
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

// A worker that speaks OAP, or uses the backend directly, nacks with the text of
// an error text that is not valid UTF-8, which is allowed.
func TestMessageWithBinaryCauseCanBeReceived(t *testing.T) {
	d := newDaemon(t, membox.New(nil), broker.Limits{})
	token := d.mint(t, "")
	c := d.broker.Caller(token, broker.Origin{})
	for _, body := range []string{"one", "two", "three"} {
		if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte(body)}}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[0].Receipt, Cause: "cannot parse \xff"}}); err != nil {
		t.Fatal(err)
	}
	answer, err := d.rpc(token, connect.WithGRPC()).Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
	stats, _ := c.Stats(t.Context(), "orders")
	if err != nil {
		t.Errorf("recv: %v; %d messages stay leased", err, stats.InFlight)
	} else if len(answer.GetMessages()) != 3 {
		t.Error(len(answer.GetMessages()))
	}
}

func TestTraceOfMessageWithLongCauseIsReturned(t *testing.T) {
	d := newDaemon(t, membox.New(nil), broker.Limits{})
	token := d.mint(t, "")
	c := d.broker.Caller(token, broker.Origin{})
	sent, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte("x")}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[0].Receipt, Cause: "x" + strings.Repeat("ü", 150)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.rpc(token, connect.WithGRPC()).Life(t.Context(), &mailboxv1.LifeRequest{Topic: "orders", MsgId: sent[0].ID}); err != nil {
		t.Errorf("life: %v", err)
	}
}

// TestCausesOverEveryProtocol is CON-2 over gRPC: dead letters by cause, and how far it looked, whatever a worker wrote as its error.
func TestCausesOverEveryProtocol(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		token := d.mint(t, "")
		rpc, c := d.rpc(token, protocol), d.broker.Caller(token, broker.Origin{})
		send(t, rpc, 5)
		got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 5, Visibility: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{"refused after 1 s", "refused after 2 s", "\x1b[2J \xff\xfe \u202e", "refused after 3 s", "refused after 4 s"} {
			if err := c.DeadLetter(t.Context(), "orders", []broker.DeadLetterRequest{{Receipt: got[i].Receipt, Reason: driver.ReasonFatal, Error: text, ErrorType: "x\xff"}}); err != nil {
				t.Fatal(err)
			}
		}
		read := func(rpc mailboxv1connect.MailboxClient, r *mailboxv1.CausesRequest) (causes []*mailboxv1.Cause, extent *mailboxv1.CausesExtent, err error) {
			stream, err := rpc.Causes(t.Context(), r)
			if err != nil {
				return nil, nil, err
			}
			for stream.Receive() {
				causes = append(causes, stream.Msg().GetCauses()...)
				extent = stream.Msg().GetExtent()
			}
			return causes, extent, stream.Err()
		}
		causes, extent, err := read(rpc, &mailboxv1.CausesRequest{Topic: "orders"})
		if err != nil || len(causes) != 2 || extent.GetLooked() != 5 || extent.GetSelected() != 5 || extent.GetCauses() != 2 || extent.GetCursor() != "" {
			t.Fatalf("%v, %v, %v", causes, extent, err)
		}
		if first := causes[0]; first.GetMessages() != 4 || first.GetWords() != "refused after … s" || first.GetMsgId() != got[0].ID || first.GetReason() != "fatal" ||
			first.GetErrorType() != "x\ufffd" || !first.GetFirstDeadAt().IsValid() || !first.GetLastDeadAt().IsValid() {
			t.Errorf("%v", first)
		}
		only := causes[1].GetCause()
		some, extent, err := read(rpc, &mailboxv1.CausesRequest{Topic: "orders", Cause: only, Priority: proto.Int32(0), Limit: 1, WithinMs: 5})
		if err != nil || len(some) != 1 || some[0].GetMessages() != 1 || extent.GetLooked() != 5 || extent.GetSelected() != 1 {
			t.Errorf("of one cause: %v, %v, %v", some, extent, err)
		}
		stream, err := rpc.Peek(t.Context(), &mailboxv1.PeekRequest{Topic: "orders", Cause: only})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for stream.Receive() {
			n += len(stream.Msg().GetMessages())
		}
		if stream.Err() != nil || n != 1 {
			t.Errorf("a peek with a cause: %d messages, %v", n, stream.Err())
		}
		for want, refused := range map[connect.Code]struct {
			rpc     mailboxv1connect.MailboxClient
			request *mailboxv1.CausesRequest
		}{
			connect.CodeInvalidArgument:  {rpc, &mailboxv1.CausesRequest{Topic: "orders", Cursor: "nonsense"}},
			connect.CodePermissionDenied: {d.rpc(d.mint(t, "", capability.Operations(capability.OpPeek)), protocol), &mailboxv1.CausesRequest{Topic: "orders"}},
			connect.CodeNotFound:         {d.rpc(d.mint(t, "acme"), protocol), &mailboxv1.CausesRequest{Topic: "orders"}},
			connect.CodeUnauthenticated:  {d.rpc(capability.Token{}, protocol), &mailboxv1.CausesRequest{Topic: "orders"}},
		} {
			if _, _, err := read(refused.rpc, refused.request); connect.CodeOf(err) != want {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	})
}
