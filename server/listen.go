package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/internal/version"
	"github.com/mailboxmq/mailbox/server/internal/guard"
)

// A listener accepts connections of one protocol.
type listener struct {
	net.Listener
	name  string
	serve func(ctx context.Context, l net.Listener) error
}

// listen opens all listeners, or none.
func (s *Server) listen(ctx context.Context, c *Config) (opened []listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range opened {
				_ = l.Close()
			}
		}
	}()
	if c.TLSCert != "" {
		s.certs = &certificates{certFile: c.TLSCert, keyFile: c.TLSKey, clientCA: c.TLSClientCA}
		read, err := s.certs.read()
		if err != nil {
			return nil, err
		}
		s.certs.current.Store(read)
	}
	serveHTTP := func(_ context.Context, l net.Listener) error { return s.http.Serve(l) }
	for _, want := range []struct {
		name, network, address string
		serve                  func(context.Context, net.Listener) error
		plain                  bool
	}{
		{HTTP, "tcp", c.Listen, serveHTTP, false},
		{OAP, "tcp", c.ListenOAP, s.oap.Serve, false},
		{SQS, "tcp", c.ListenSQS, s.serveSQS, false},
		{Metrics, "tcp", c.ListenMetrics, s.serveMetrics, true},
		{Socket, "unix", c.Socket, serveHTTP, true},
	} {
		if want.address == "" || want.address == Off {
			continue
		}
		l, err := bind(ctx, want.network, want.address)
		if err != nil {
			return opened, fmt.Errorf("%s: %w", named("listen."+want.name), err)
		}
		s.mu.Lock()
		s.addresses[want.name] = l.Addr()
		s.mu.Unlock()
		l = s.bounded(l, want.name, c.MaxConnections)
		if s.certs != nil && !want.plain {
			l = tls.NewListener(l, s.certs.config())
		}
		opened = append(opened, listener{l, want.name, want.serve})
	}
	return opened, nil
}

// bind opens a listener. Only its owner can use a unix socket; bind removes the socket
// of a daemon that has died.
func bind(ctx context.Context, network, address string) (net.Listener, error) {
	var config net.ListenConfig
	if network != "unix" {
		return config.Listen(ctx, network, address)
	}
	if c, err := net.Dial("unix", address); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("another process listens on %s", address)
	}
	if info, err := os.Lstat(address); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(address); err != nil {
			return nil, err
		}
	}
	l, err := config.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(address, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serveMetrics serves health, readiness and metrics, without a token.
func (s *Server) serveMetrics(_ context.Context, l net.Listener) error {
	config := s.Config()
	own := s.httpServer(&config, s.api.Open())
	own.Protocols = nil // HTTP/1 is enough for scrapers
	s.http.RegisterOnShutdown(func() { _ = own.Close() })
	return own.Serve(l)
}

// certificates are the files of TLS, which can be read again while the daemon runs.
type certificates struct {
	certFile, keyFile, clientCA string
	current                     atomic.Pointer[tls.Config]
}

// read reads the files. The result takes effect when it is stored in c.current.
func (c *certificates) read() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"},
	}
	if c.clientCA != "" {
		text, err := os.ReadFile(c.clientCA)
		if err != nil {
			return nil, fmt.Errorf("read client CA: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read client CA: %s contains no certificate", c.clientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// config returns the configuration of a listener: each connection uses c.current.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// hosts returns the names by which clients without a token may reach plaintext
// listeners: those in AllowedHosts, and those in listen addresses.
func (c *Config) hosts() (guard.Hosts, error) {
	var names []string
	for name := range strings.SplitSeq(c.AllowedHosts, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	for _, address := range []string{c.Listen, c.ListenSQS, c.ListenMetrics} {
		if name, _, err := net.SplitHostPort(address); err == nil && name != "" && !strings.Contains(name, ":") {
			names = append(names, name)
		}
	}
	return guard.NewHosts(names)
}

// warnOfPlaintext logs each listener that other machines can reach in plaintext.
// listen.insecure allows that for all listeners, perhaps for the sake of one.
func (s *Server) warnOfPlaintext(ctx context.Context) {
	c := s.Config()
	for _, l := range []struct {
		name, address string
		tls           bool
	}{
		{HTTP, c.Listen, c.TLSCert != ""}, {OAP, c.ListenOAP, c.TLSCert != ""}, {SQS, c.ListenSQS, c.TLSCert != ""}, {Metrics, c.ListenMetrics, false},
	} {
		if s.Address(l.name) != "" && !l.tls && !loopback(l.address) {
			s.log.LogAttrs(ctx, slog.LevelWarn, "plaintext listener beyond this machine",
				slog.String("listener", l.name), slog.String("address", l.address))
		}
	}
}

// startAttrs returns the attributes of the log line about the start.
func (s *Server) startAttrs() []slog.Attr {
	c := s.Config()
	attrs := []slog.Attr{slog.String("version", version.Read().Version), slog.String("profile", c.Profile), slog.Bool("amnesia", *c.Amnesia)}
	for _, name := range []string{HTTP, OAP, SQS, Metrics, Socket} {
		if address := s.Address(name); address != "" {
			attrs = append(attrs, slog.String(name, address))
		}
	}
	if c.InsecureListen {
		attrs = append(attrs, slog.Bool("plaintext_beyond_this_machine", true))
	}
	if c.SQS.Unsigned {
		attrs = append(attrs, slog.Bool("sqs_unsigned", true))
	}
	return attrs
}
