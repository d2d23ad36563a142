package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

// certify writes a certificate for 127.0.0.1 with a name.
func certify(t *testing.T, dir, name string, uris ...*url.URL) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, URIs: uris, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestTLSIsVersion13AndReloadsCertificate(t *testing.T) {
	dir := t.TempDir()
	first, firstKey := certify(t, dir, "first")
	worker := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/worker"}
	client, clientKey := certify(t, dir, "client", worker)
	config := server.Config{
		Profile: server.Micronode, Listen: "127.0.0.1:0", ListenOAP: server.Off, ListenMetrics: "127.0.0.1:0",
		TLSCert: first, TLSKey: firstKey, TLSClientCA: client,
	}
	r := start(t, config)
	r.base = "https://" + r.Address(server.HTTP)
	pair, err := tls.LoadX509KeyPair(client, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	served := ""
	secure := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		served = s.PeerCertificates[0].Subject.CommonName
		if s.Version != tls.VersionTLS13 {
			return fmt.Errorf("version %x", s.Version)
		}
		return nil
	}}
	r.client = &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	bound, err := r.OperatorToken().Narrow(capability.Peers(worker.String()))
	if err != nil {
		t.Fatal(err)
	}
	if status, fields := r.post(bound, "/v1/traits", `{"topic":"orders"}`); status != 200 || served != "first" {
		t.Errorf("with its certificate: %d %v, served %q", status, fields, served)
	}
	second, secondKey := certify(t, dir, "second")
	for from, to := range map[string]string{second: first, secondKey: firstKey} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Reload(config); err != nil {
		t.Fatal(err)
	}
	if r.get("/healthz"); served != "second" {
		t.Errorf("after the reload %q is served", served)
	}
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}}
	if response, err := old.Get(r.base + "/healthz"); err == nil {
		_ = response.Body.Close()
		t.Error("TLS 1.2 was accepted")
	}
	unknown := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	if response, err := unknown.Get(r.base + "/healthz"); err == nil {
		_ = response.Body.Close()
		t.Error("a client without a certificate was accepted")
	}
}

func TestMetricsWithoutTokenShowNoNames(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, ListenMetrics: "127.0.0.1:0"})
	r.send("layoffs-2027", "k", "eA==")
	stranger := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(base, path string) (int, string) {
		t.Helper()
		response, err := stranger.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if status, text := get(r.base, "/metrics"); status != http.StatusUnauthorized || strings.Contains(text, "layoffs-2027") {
		t.Errorf("without a token: %d %.200s", status, text)
	}
	if status, _ := get(r.base, "/readyz"); status != http.StatusOK {
		t.Errorf("readiness without a token: %d", status)
	}
	if text := r.get("/metrics"); !strings.Contains(text, "layoffs-2027") {
		t.Errorf("with the operator's token: %.200s", text)
	}
	own := "http://" + r.Address(server.Metrics)
	if status, text := get(own, "/metrics"); status != http.StatusOK || !strings.Contains(text, "layoffs-2027") {
		t.Errorf("on the metrics listener: %d %.200s", status, text)
	}
	if status, _ := get(own, "/v1/ping"); status != http.StatusNotFound {
		t.Errorf("another path on the metrics listener: %d", status)
	}
}

func TestSocketIsPrivateToItsOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mailbox.sock")
	for range 2 { // a leftover socket does not prevent the second start
		r := start(t, server.Config{Profile: server.Micronode, Listen: server.Off, ListenOAP: server.Off, Socket: path})
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket: %v, %v", info.Mode(), err)
		}
		r.base = "http://mailbox"
		r.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		r.send("orders", "k", "SGk=")
		r.halt()
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, MaxConnections: 2})
	var held []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", r.Address(server.HTTP))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	c, err := net.Dial("tcp", r.Address(server.HTTP))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("one connection too many: %v, want it closed", err)
	}
	_ = c.Close()
	for _, c := range held {
		_ = c.Close()
	}
}

func TestMetricsBeyondThisMachineNeedConsent(t *testing.T) {
	config := server.Config{Profile: server.Micronode, Listen: "127.0.0.1:0", ListenOAP: server.Off, ListenMetrics: "0.0.0.0:0"}
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "listen.metrics") || !strings.Contains(err.Error(), "listen.insecure") {
		t.Errorf("metrics beyond this machine: %v", err)
	}
	encrypted := config
	encrypted.TLSCert, encrypted.TLSKey = "cert", "key" // not used for metrics
	if err := encrypted.Validate(); err == nil {
		t.Error("a certificate for other listeners allows metrics beyond this machine")
	}
	config.InsecureListen = true
	r := start(t, config)
	if log := r.log.String(); strings.Count(log, "plaintext listener beyond this machine") != 1 || !strings.Contains(log, `"listener":"metrics"`) {
		t.Errorf("the log does not warn of the listener for metrics: %s", log)
	}
}

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Skipf("this machine has no address %s: %v", from, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestIdleConnectionsOfAddressLeaveOthersRoom(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, MaxConnections: 16})
	for _, listener := range []string{server.HTTP, server.OAP} {
		for range 40 {
			dialFrom(t, "127.0.0.2", r.Address(listener))
		}
	}
	r.get("/healthz") // over one connection from 127.0.0.1: there may be no room for a second
	box := remotebox.New([]string{r.Address(server.OAP)}, r.OperatorToken().Reveal(), nil)
	defer box.Close()
	if err := box.Ping(t.Context()); err != nil {
		t.Errorf("over OAP: %v", err)
	}
	if figures := r.get("/metrics"); !strings.Contains(figures, `mailbox_share_owners{share="http_connections"} 2`) {
		t.Error("the metrics do not show the two addresses")
	}
}

// TestConnectionsCountForTokenOnceShown lets one tenant open many connections over
// OAP/1 from the address of another tenant.
func TestConnectionsCountForTokenOnceShown(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, MaxConnections: 16})
	mint := func(tenant string) string {
		status, answer := r.post(r.OperatorToken(), "/v1/caps/mint", fmt.Sprintf(`{"tenant":%q,"caveats":[]}`, tenant))
		if status != http.StatusOK {
			t.Fatal(status, answer)
		}
		return answer["token"].(string)
	}
	hostile, victim := mint("hostile"), mint("victim")
	refused := 0
	for range 20 {
		box := remotebox.New([]string{r.Address(server.OAP)}, hostile, &remotebox.Options{Patience: time.Millisecond})
		defer box.Close()
		if err := box.Ping(t.Context()); err != nil {
			refused++
		}
	}
	if refused < 4 {
		t.Errorf("%d of 20 connections of one tenant were refused, where 16 may be open", refused)
	}
	box := remotebox.New([]string{r.Address(server.OAP)}, victim, nil)
	defer box.Close()
	if err := box.Ping(t.Context()); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}
