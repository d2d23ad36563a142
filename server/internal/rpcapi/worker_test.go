package rpcapi_test

import (
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
		if held := w.GetHeld(); len(held) != 1 || held[0].GetMsgId() != got.GetMessages()[0].GetEnvelope().GetMsgId() || held[0].GetAttempt() != 1 {
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
