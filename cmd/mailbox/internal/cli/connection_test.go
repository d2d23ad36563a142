package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/server"
)

func TestMissingDaemonIsReportedAtOnce(t *testing.T) {
	d := start(t, inMemory())
	environ := d.environ()
	d.stop()
	for _, args := range [][]string{{"stats"}, {"send", "q", "x"}, {"recv", "q"}, {"recv", "q", "--follow"}, {"bench"}, {"trace", "x"}, {"queues", "ls"}} {
		t.Run(args[0], func(t *testing.T) {
			r := mailbox(t, environ, args...)
			r.wantCode(t, 3, "no daemon answers at 127.0.0.1:", "connection refused", "start one with mailboxd")
		})
	}
	r := mailbox(t, environ, "stats", "--json")
	r.wantCode(t, 3, `"code":"unreachable"`, `"exit":3`)
}

func TestTokenOfLocalDaemonIsFound(t *testing.T) {
	home := t.TempDir()
	config := inMemory()
	config.DataDir = filepath.Join(home, ".local", "state", "mailboxd")
	d := start(t, config)
	address := "MAILBOX_ADDR=" + d.Address(server.HTTP)
	text, err := os.ReadFile(d.tokenFile())
	if err != nil {
		t.Fatal(err)
	}
	for name, environ := range map[string][]string{
		"home":                {"HOME=" + home},
		"state":               {"HOME=/nowhere", "XDG_STATE_HOME=" + filepath.Join(home, ".local", "state")},
		"data directory":      {"MAILBOXD_DATA_DIR=" + config.DataDir},
		"file":                {"MAILBOX_TOKEN_FILE=" + d.tokenFile()},
		"file of the daemon":  {"MAILBOXD_TOKEN_FILE=" + d.tokenFile()},
		"token":               {"MAILBOX_TOKEN=" + string(text)},
		"token before a file": {"MAILBOX_TOKEN=" + string(text), "MAILBOX_TOKEN_FILE=/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			r := mailbox(t, append(environ, address), "queues", "ls")
			r.wantCode(t, 0)
		})
	}
	r := mailbox(t, []string{"HOME=/nowhere", address}, "--data-dir", config.DataDir, "queues", "ls")
	r.wantCode(t, 0)
}

func TestInvalidTokenIsExplained(t *testing.T) {
	d := start(t, inMemory())
	address := "MAILBOX_ADDR=" + d.Address(server.HTTP)
	dir := t.TempDir()
	open, garbage := filepath.Join(dir, "open"), filepath.Join(dir, "garbage")
	text, err := os.ReadFile(d.tokenFile())
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{open: text, garbage: []byte("garbage")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	stranger := filepath.Join(dir, "stranger")
	token, err := keyring.New(keyring.NewKey()).Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if err := token.WriteFile(stranger); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		environ string
		code    int
		words   string
	}{
		{"HOME=" + dir, 4, "there is no token"},
		{"MAILBOX_TOKEN_FILE=/nowhere", 4, "there is no file /nowhere, which MAILBOX_TOKEN_FILE names"},
		{"MAILBOX_TOKEN_FILE=" + open, 4, "chmod 600"},
		{"MAILBOX_TOKEN_FILE=" + garbage, 4, "does not contain a token"},
		{"MAILBOX_TOKEN=garbage", 2, "MAILBOX_TOKEN does not contain a token"},
		{"MAILBOX_TOKEN_FILE=" + stranger, 4, "not made with the keys of this daemon"},
	} {
		t.Run(c.words, func(t *testing.T) {
			r := mailbox(t, []string{c.environ, address}, "stats")
			r.wantCode(t, c.code, c.words)
			if strings.Contains(r.stderr, strings.TrimSpace(string(text))) || strings.Contains(r.stderr, "garbage\n") {
				t.Error("the token was printed")
			}
		})
	}
	// Over OAP/1 too.
	r := mailbox(t, []string{"MAILBOX_TOKEN_FILE=" + stranger, address, "MAILBOX_OAP_ADDR=" + d.Address(server.OAP)}, "send", "q", "x")
	r.wantCode(t, 4, "not made with the keys of this daemon")
}

func TestPlaintextTokenToAnotherMachineIsRefused(t *testing.T) {
	for _, c := range []struct{ flag, address, words string }{
		{"--addr", "192.0.2.1:9410", "https://192.0.2.1:9410"},
		{"--addr", "http://mailbox.example.org", "https://mailbox.example.org"},
		{"--oap-addr", "192.0.2.1:9411", "without TLS"},
	} {
		r := mailbox(t, []string{"MAILBOX_TOKEN=x"}, "stats", c.flag, c.address)
		r.wantCode(t, 2, c.words)
	}
	for _, address := range []string{"ftp://x", "://", "http://user:secret@localhost:1", "http://", "http://localhost:1/?a=b"} {
		r := mailbox(t, nil, "stats", "--addr", address)
		r.wantCode(t, 2, "--addr: invalid value", "want host:port")
		if strings.Contains(r.stderr, "secret") {
			t.Error("the password was printed")
		}
	}
}

func TestServerThatIsNotMailboxdIsRefused(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent on to another address")
		}
	}))
	defer elsewhere.Close()
	d := start(t, inMemory())
	for name, handler := range map[string]http.HandlerFunc{
		"other": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "teapot", http.StatusTeapot) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := httptest.NewServer(handler)
			defer other.Close()
			r := mailbox(t, d.environ("MAILBOX_ADDR="+other.URL), "stats")
			r.wantCode(t, 3, "is not mailboxd")
		})
	}
}

// certificate writes a certificate of its own authority, for this machine.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestTLSWithCertificatesOnBothSides(t *testing.T) {
	cert, key := certificate(t)
	config := inMemory()
	config.TLSCert, config.TLSKey, config.TLSClientCA = cert, key, cert
	d := start(t, config)
	secure := d.environ("MAILBOX_ADDR=https://"+d.Address(server.HTTP), "MAILBOX_CA="+cert)
	both := append(secure[:len(secure):len(secure)], "MAILBOX_CERT="+cert, "MAILBOX_KEY_FILE="+key)
	for _, surface := range surfaces {
		r := mailbox(t, append(both[:len(both):len(both)], surface.more...), "send", "q", "hello")
		r.wantCode(t, 0)
	}
	r := mailbox(t, both, "doctor")
	if !strings.Contains(r.stdout, "warning  TLS") || !strings.Contains(r.stdout, "renew the certificate") {
		t.Errorf("the doctor does not see that the certificate ends soon:\n%s", r.stdout)
	}
	r = mailbox(t, secure, "stats")
	r.wantCode(t, 3, "no daemon answers")
	r = mailbox(t, d.environ("MAILBOX_ADDR=https://"+d.Address(server.HTTP)), "stats")
	r.wantCode(t, 3, "certificate")
	r = mailbox(t, secure, "stats", "--cert", cert)
	r.wantCode(t, 2, "go together")
	r = mailbox(t, secure, "stats", "--ca", key)
	r.wantCode(t, 2, "contains no certificate")
}

func TestTLSMistakesHaveSpecificAdvice(t *testing.T) {
	cert, key := certificate(t)
	config := inMemory()
	config.TLSCert, config.TLSKey = cert, key
	secure, plain := start(t, config), start(t, inMemory())
	for _, args := range [][]string{{"stats"}, {"send", "q", "x"}} {
		for name, c := range map[string]struct {
			environ []string
			words   string
		}{
			"http to TLS":       {secure.environ(), "requires TLS; write --addr https://" + secure.Address(server.HTTP)},
			"https to plain":    {plain.environ("MAILBOX_ADDR=https://" + plain.Address(server.HTTP)), "does not speak TLS; write its address without https://"},
			"unknown authority": {secure.environ("MAILBOX_ADDR=https://" + secure.Address(server.HTTP)), "is from an authority that is not trusted here"},
			"other name": {
				secure.environ("MAILBOX_CA="+cert, "MAILBOX_ADDR=https://"+strings.Replace(secure.Address(server.HTTP), "127.0.0.1", "localhost", 1), "MAILBOX_OAP_ADDR="+strings.Replace(secure.Address(server.OAP), "127.0.0.1", "localhost", 1)),
				"is not for localhost",
			},
		} {
			t.Run(name+"/"+args[0], func(t *testing.T) {
				r := mailbox(t, c.environ, args...)
				r.wantCode(t, 3, c.words)
			})
		}
	}
}

func TestOAPAtHTTPAddressIsExplained(t *testing.T) {
	d := start(t, inMemory())
	r := mailbox(t, d.environ("MAILBOX_OAP_ADDR="+d.Address(server.HTTP)), "send", "q", "x")
	r.wantCode(t, 3, "speaks HTTP, and not OAP/1 frames", "--oap-addr")
	r = mailbox(t, d.environ("MAILBOX_ADDR="+d.Address(server.OAP)), "stats")
	r.wantCode(t, 3, "is for OAP/1 frames, and not for HTTP", "--oap-addr")
}
