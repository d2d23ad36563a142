package server_test

import (
	"crypto/tls"
	"errors"
	"net/url"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

func TestPeerTokenWorksOverOAP(t *testing.T) {
	dir := t.TempDir()
	cert, key := certify(t, dir, "server")
	client, clientKey := certify(t, dir, "client", &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/worker"})
	r := start(t, server.Config{Profile: server.Micronode, Listen: server.Off, TLSCert: cert, TLSKey: key, TLSClientCA: client})
	pair, err := tls.LoadX509KeyPair(client, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	send := func(peer string) error {
		t.Helper()
		token, err := r.OperatorToken().Narrow(capability.Peers(peer))
		if err != nil {
			t.Fatal(err)
		}
		backend := remotebox.New([]string{r.Address(server.OAP)}, token.Reveal(), &remotebox.Options{
			TLS: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true},
		})
		defer backend.Close()
		q, err := backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			return err
		}
		_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}})
		return err
	}
	if err := send("spiffe://example.org/worker"); err != nil {
		t.Errorf("with its certificate: %v", err)
	}
	if err := send("spiffe://example.org/other"); !errors.Is(err, driver.ErrForbidden) {
		t.Errorf("a token for another certificate: %v", err)
	}
}
