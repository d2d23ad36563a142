package oapapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// serveOn serves a daemon on a listener.
func (d *daemon) serveOn(t testing.TB, l net.Listener) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(t.Context(), l) }()
	t.Cleanup(func() {
		_ = d.server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// cycle sends, receives and acks a message.
func cycle(t testing.TB, client *remotebox.Backend) {
	t.Helper()
	q, err := client.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
}

func TestServesUnixSockets(t *testing.T) {
	d := newDaemon(t, membox.New(nil), oapapi.Options{})
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	d.serveOn(t, l)
	cycle(t, newRemote(t, d, remotebox.New([]string{"unix:" + path}, d.token, nil)).Backend)
}

func TestServesTLS(t *testing.T) {
	d := newDaemon(t, membox.New(nil), oapapi.Options{})
	certificate, roots := selfSigned(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	d.serveOn(t, l)
	address := []string{l.Addr().String()}
	cycle(t, newRemote(t, d, remotebox.New(address, d.token, &remotebox.Options{TLS: &tls.Config{RootCAs: roots}})).Backend)

	stranger := remotebox.New(address, d.token, &remotebox.Options{TLS: &tls.Config{}, Patience: -1})
	defer stranger.Close()
	if err := stranger.Ping(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a client that does not trust the certificate: %v", err)
	}
}

func selfSigned(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, roots
}

// TestATokenIsReplacedBeforeItExpires goes on with another token without a
// failure.
func TestATokenIsReplacedBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		short := mint(t, ring, capability.ExpiresAt(time.Now().Add(time.Minute)))
		d := newDaemonWith(t, membox.New(nil), oapapi.Options{}, ring, short)
		defer d.stop(t)
		client := d.client()
		defer client.Close()
		cycle(t, client)
		if err := client.SetToken(mint(t, ring)); err != nil {
			t.Fatal(err)
		}
		cycle(t, client) // on the old connection, or the new one
		synctest.Wait()
		time.Sleep(time.Hour)
		cycle(t, client)
		if g := d.server.Gauges(); g.Connections != 1 {
			t.Errorf("%d connections: the old one should be gone", g.Connections)
		}
	})
}
