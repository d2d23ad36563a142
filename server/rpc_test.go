package server_test

import (
	"crypto/tls"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/server"
)

// TestGRPCIsServedBesideHTTP calls the HTTP address with a generated gRPC client,
// with TLS and without.
func TestGRPCIsServedBesideHTTP(t *testing.T) {
	cert, key := certify(t, t.TempDir(), "server")
	for name, config := range map[string]server.Config{
		"in plaintext": {Profile: server.Micronode},
		"with TLS":     {Profile: server.Micronode, TLSCert: cert, TLSKey: key},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, config)
			transport := &http.Transport{Protocols: new(http.Protocols)}
			base := "http://" + r.Address(server.HTTP)
			if config.TLSCert == "" {
				transport.Protocols.SetUnencryptedHTTP2(true)
			} else {
				base = "https://" + r.Address(server.HTTP)
				transport.Protocols.SetHTTP2(true)
				transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
			}
			defer transport.CloseIdleConnections()
			client := mailboxv1connect.NewMailboxClient(&http.Client{Transport: transport}, base, connect.WithGRPC())
			ctx, call := connect.NewClientContext(t.Context())
			call.RequestHeader().Set("Authorization", "Bearer "+r.OperatorToken().Reveal())
			sent, err := client.Send(ctx, &mailboxv1.SendRequest{
				Topic: "orders", Messages: []*mailboxv1.Outgoing{{Payload: []byte("tea"), IdemKey: "1"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			r.base, r.client = base, &http.Client{Transport: transport}
			status, got := r.post(r.OperatorToken(), "/v1/recv", `{"topic":"orders","visibility_ms":60000}`)
			messages, _ := got["messages"].([]any)
			if status != http.StatusOK || len(messages) != 1 {
				t.Fatalf("a message sent by gRPC is not received by HTTP: %d %v", status, got)
			}
			if id := messages[0].(map[string]any)["msg_id"]; id != sent.GetResults()[0].GetMsgId() {
				t.Errorf("got message %v, sent was %v", id, sent)
			}
		})
	}
}
