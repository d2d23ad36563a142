package cli

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// The default addresses of a daemon.
const (
	defaultPort    = "9410"
	defaultAddr    = "127.0.0.1:" + defaultPort
	defaultOAPAddr = "127.0.0.1:9411"
	off            = "off"
)

// An endpoint is the address of the daemon, with how to connect to it.
type endpoint struct {
	base   string // of URLs
	socket string // path of a unix socket; empty means TCP
	shown  string // for messages
	host   string // host:port; empty with a socket
	oap    string // address for OAP/1; empty if there is none
	tls    *tls.Config
}

// addresses are the addresses of one daemon, and their source.
type addresses struct {
	http, source string
	oap          string // empty if there is none
	cert         string // file of the daemon's certificate, if that is known
}

// addresses returns the addresses of the daemon: those of the flags, else those of
// MAILBOX_ variables, else those of the daemon's own variables, as in its container, else
// the defaults. An OAP/1 address from a weaker source than the HTTP address is not
// used: it may belong to another daemon.
func (s *shell) addresses() addresses {
	var a addresses
	a.oap = s.global.oapAddr
	if s.global.addr != "" {
		a.http, a.source = s.global.addr, "--addr"
		return a
	}
	if a.oap == "" {
		a.oap = s.environ["MAILBOX_OAP_ADDR"]
	}
	if a.http = s.environ["MAILBOX_ADDR"]; a.http != "" && a.http != off {
		a.source = "MAILBOX_ADDR"
		return a
	}
	if path := s.environ["MAILBOXD_SOCKET"]; path != "" {
		a.http, a.source = "unix:"+path, "MAILBOXD_SOCKET"
		return a
	}
	if a.oap == "" {
		a.oap = s.environ["MAILBOXD_LISTEN_OAP"]
	}
	if a.http = s.environ["MAILBOXD_LISTEN"]; a.http != "" && a.http != off {
		a.source = "MAILBOXD_LISTEN"
		if a.cert = s.environ["MAILBOXD_TLS_CERT"]; a.cert != "" {
			a.http = "https://" + a.http
		}
		return a
	}
	a.http = defaultAddr
	if a.oap == "" {
		a.oap = defaultOAPAddr
	}
	return a
}

// endpoint returns the endpoint of the daemon.
func (s *shell) endpoint() (*endpoint, error) {
	a := s.addresses()
	if a.oap == off {
		a.oap = ""
	}
	if host, port, err := net.SplitHostPort(a.oap); err == nil && !strings.HasPrefix(a.oap, "unix:") {
		a.oap = net.JoinHostPort(reachable(host), port)
	}
	e := &endpoint{shown: a.http, oap: a.oap}
	secure := strings.HasPrefix(a.http, "https://")
	if e.oap != "" && !secure && !s.global.plaintext && !strings.HasPrefix(e.oap, "unix:") && !loopback(e.oap) {
		return nil, usageError("%s is on another machine, and without TLS the network can read the token; give --addr as https://, or set --allow-plaintext", e.oap)
	}
	if path, ok := strings.CutPrefix(a.http, "unix:"); ok {
		e.base, e.socket = "http://mailboxd", path
		return e, nil
	}
	parsed, err := parseAddress(a.http)
	if err != nil {
		return nil, wrongAddress(a.source, a.http, "host:port, https://host:port or unix:/path")
	}
	e.base, e.host = parsed.Scheme+"://"+parsed.Host+strings.TrimSuffix(parsed.Path, "/"), parsed.Host
	e.shown = e.host
	if parsed.Scheme == "https" {
		e.shown = e.base
		e.tls, err = s.tlsConfig(a.cert)
		return e, err
	}
	if !s.global.plaintext && !loopback(e.host) {
		return nil, usageError("%s is on another machine, and over http:// the network can read the token; write https://%s, or set --allow-plaintext", e.host, e.host)
	}
	return e, nil
}

// wrongAddress returns the error about an invalid address. It does not quote an address that may contain a password.
func wrongAddress(source, text, want string) error {
	if strings.Contains(text, "@") {
		return usageError("%s: invalid value; want %s", source, want)
	}
	return usageError("%s: invalid value %.80q; want %s", source, text, want)
}

// parseAddress parses an address, and adds the default port: that of the daemon, or that of
// HTTP or HTTPS if the address is a URL. An unspecified host, which daemons listen on,
// becomes this machine.
func parseAddress(address string) (*url.URL, error) {
	text, port := address, ""
	if !strings.Contains(address, "://") {
		if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
			address = "[" + address + "]"
		}
		text, port = "http://"+address, defaultPort
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.User != nil || parsed.RawQuery != "" {
		return nil, errors.New("not an address")
	}
	switch {
	case parsed.Port() != "":
		port = parsed.Port()
	case port == "" && parsed.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	parsed.Host = net.JoinHostPort(reachable(parsed.Hostname()), port)
	return parsed, nil
}

// reachable returns the host to connect to for a host that a daemon listens on.
func reachable(host string) string {
	if host == "" {
		return "127.0.0.1"
	}
	address, err := netip.ParseAddr(host)
	switch {
	case err != nil || !address.IsUnspecified():
		return host
	case address.Is6():
		return "::1"
	}
	return "127.0.0.1"
}

func loopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// tlsConfig returns the TLS configuration for the daemon. If shown is not empty, it is the file
// of the daemon's certificate, and the daemon is identified by that and not by
// its name: it is on this machine, whose name is not in the certificate.
func (s *shell) tlsConfig(shown string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if ca, _ := s.firstOf(s.global.ca, "ca", "MAILBOX_CA"); ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, usageError("--ca: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usageError("--ca: %s contains no certificate", ca)
		}
	}
	if shown != "" && config.RootCAs == nil {
		pair, err := os.ReadFile(shown)
		if err != nil {
			return nil, usageError("MAILBOXD_TLS_CERT: %v", err)
		}
		pin(config, pair)
	}
	cert, _ := s.firstOf(s.global.cert, "cert", "MAILBOX_CERT")
	key, _ := s.firstOf(s.global.key, "key-file", "MAILBOX_KEY_FILE")
	if (cert == "") != (key == "") {
		return nil, usageError("--cert and --key-file go together; give both or none")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, usageError("--cert: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// pin makes config accept only a peer with the first certificate of a PEM file.
func pin(config *tls.Config, file []byte) {
	block, _ := pem.Decode(file)
	config.InsecureSkipVerify = true // VerifyConnection compares the whole certificate
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if block == nil || len(state.PeerCertificates) == 0 || !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
			return errors.New("the daemon presents another certificate than MAILBOXD_TLS_CERT; send it a SIGHUP if the file is newer")
		}
		return nil
	}
}
