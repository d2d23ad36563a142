package rpcapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
)

// TestWorkersAreListedOverEveryProtocol is CON-2 over gRPC.
func TestWorkersAreListedOverEveryProtocol(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *daemon, protocol connect.ClientOption) {
		token := d.mint(t, "")
		named := func(name string) mailboxv1connect.MailboxClient {
			return mailboxv1connect.NewMailboxClient(d.client, "http://daemon", protocol,
				connect.WithInterceptors(shows{token, http.Header{"X-Mailbox-Worker": {name}}}))
		}
		rpc := named("w-1")
		_, err := rpc.Send(t.Context(), &mailboxv1.SendRequest{Topic: "orders", Messages: []*mailboxv1.Outgoing{{IdemKey: "k1"}}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
		if err != nil || len(got.GetMessages()) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		half := 0.5
		id := got.GetMessages()[0].GetEnvelope().GetMsgId()
		for _, progress := range []*mailboxv1.Progress{{Fraction: &half, Text: "page 5 of 10"}, nil} { // nothing new keeps it
			extended, err := rpc.Extend(t.Context(), &mailboxv1.ExtendRequest{Topic: "orders", Entries: []*mailboxv1.ExtendEntry{
				{Delivery: &mailboxv1.DeliveryRef{Receipt: got.GetMessages()[0].GetReceipt()}, VisibilityMs: 60_000, Progress: progress},
			}})
			if err != nil || extended.GetResults()[0].GetError() != nil {
				t.Fatalf("%v, %v", extended, err)
			}
		}
		life, err := rpc.Life(t.Context(), &mailboxv1.LifeRequest{Topic: "orders", MsgId: id})
		if p := life.GetReport().GetProgress(); err != nil || p.GetFraction() != half || p.GetText() != "page 5 of 10" || !life.GetReport().GetAt().IsValid() {
			t.Errorf("%v, %v", life, err)
		}
		tooLong, err := rpc.Extend(t.Context(), &mailboxv1.ExtendRequest{Topic: "orders", Entries: []*mailboxv1.ExtendEntry{
			{Delivery: &mailboxv1.DeliveryRef{Receipt: got.GetMessages()[0].GetReceipt()}, VisibilityMs: 60_000, Progress: &mailboxv1.Progress{Text: strings.Repeat("x", 201)}},
		}})
		if err != nil || !strings.Contains(fmt.Sprint(tooLong.GetResults()[0].GetError()), "at most 200") {
			t.Errorf("a long text: %v, %v", tooLong, err)
		}
		if _, err := d.rpc(token, protocol).Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		stream, err := rpc.Workers(t.Context(), &mailboxv1.WorkersRequest{Topic: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		var workers []*mailboxv1.Worker
		for stream.Receive() {
			workers = append(workers, stream.Msg().GetWorkers()...)
		}
		if err := stream.Err(); err != nil || len(workers) != 2 {
			t.Fatalf("%v, %v", workers, err)
		}
		program, w := workers[0], workers[1]
		if !strings.Contains(program.GetName(), "connect") || program.GetInFlight() != 0 {
			t.Errorf("a client without a name is %v", program)
		}
		if w.GetName() != "w-1" || w.GetProtocol() != "grpc" || w.GetInFlight() != 1 || w.GetToken() != token.ID().String() || !w.GetSeen().IsValid() {
			t.Errorf("%v", w)
		}
		if held := w.GetHeld(); len(held) != 1 || held[0].GetMsgId() != id || held[0].GetAttempt() != 1 || held[0].GetReport().GetProgress().GetText() != "page 5 of 10" {
			t.Errorf("%v", held)
		}
		if _, err := named(strings.Repeat("x", 129)).Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a long name: %v", err)
		}
		push, err := named(strings.Repeat("x", 129)).RecvStream(t.Context())
		if err == nil {
			_ = push.Send(&mailboxv1.RecvStreamRequest{Topic: "orders", Credit: 1}) // Receive has the error
			_, err = push.Receive()
		}
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a stream with a long name: %v", err)
		}
	})
}
