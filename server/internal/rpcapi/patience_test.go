package rpcapi_test

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/server/internal/rpcapi"
)

// The tests in this file are about clients that are silent for longer than a
// request may take to arrive. They have said what they had to say.

func TestReceiveMayWaitLongerThanReadTimeout(t *testing.T) {
	for _, protocol := range []struct {
		name string
		set  func(*http.Protocols)
	}{
		{"HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }},
		{"HTTP/2", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }},
	} {
		t.Run(protocol.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, d *daemon) {
				transport := d.transport(protocol.set)
				defer transport.CloseIdleConnections()
				rpc := mailboxv1connect.NewMailboxClient(&http.Client{Transport: transport}, "http://daemon",
					connect.WithInterceptors(shows{d.mint(t, ""), nil}))
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					<-time.After(4 * rpcapi.DefaultReadTimeout)
					send(t, d.rpc(d.mint(t, "")), 1)
				}()
				got, err := rpc.Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders", WaitMs: 60_000, VisibilityMs: proto.Float64(60_000)})
				if err != nil || len(got.GetMessages()) != 1 {
					t.Errorf("got %d messages, %v", len(got.GetMessages()), err)
				}
				<-sent
			})
		})
	}
}

func TestStreamReadsClientAfterLongSilence(t *testing.T) {
	withDaemon(t, func(t *testing.T, d *daemon) {
		rpc := d.rpc(d.mint(t, ""), connect.WithGRPC())
		send(t, rpc, 2)
		s := openStream(t.Context(), t, rpc, &mailboxv1.RecvStreamRequest{Credit: 1})
		for range 2 {
			got, err := s.Receive()
			if err != nil || len(got.GetMessages()) != 1 {
				t.Fatalf("got %d messages, %v", len(got.GetMessages()), err)
			}
			<-time.After(4 * rpcapi.DefaultReadTimeout) // it works on the message
			if err := s.Send(&mailboxv1.RecvStreamRequest{Credit: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.CloseRequest(); err != nil {
			t.Error(err)
		}
		_ = s.CloseResponse()
	})
}
