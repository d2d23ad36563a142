package remotebox_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

func TestForeignListenerIsNamedAtOnce(t *testing.T) {
	handler := http.NotFoundHandler()
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	address := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for name, test := range map[string]struct {
		address string
		options remotebox.Options
		words   string
	}{
		"HTTP":              {address(plain), remotebox.Options{}, "it speaks HTTP, and not OAP/1 frames; give the address of the daemon's listen.oap"},
		"no TLS":            {address(plain), remotebox.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, "first record does not look like a TLS handshake"},
		"unknown authority": {address(secure), remotebox.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, "certificate signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			// Patience is longer than the test's: who waits for it is not told at once.
			test.options.Patience = time.Hour
			backend := remotebox.New([]string{test.address}, "", &test.options)
			defer backend.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for range 2 { // the second tries again
				err := backend.Ping(ctx)
				if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), test.words) || !strings.Contains(err.Error(), test.address) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

func TestMuteListenerMayWantTLS(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	backend := remotebox.New([]string{secure.Listener.Addr().String()}, "", &remotebox.Options{Patience: -1})
	defer backend.Close()
	if err := backend.Ping(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "if it wants TLS, set Options.TLS") {
		t.Errorf("got %v", err)
	}
}

func TestForeignListenerBesideDaemonIsPassedOver(t *testing.T) {
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	daemon, stop, err := startDaemon()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	addresses := []string{foreign.Listener.Addr().(*net.TCPAddr).String(), daemon.Address(server.OAP)}
	backend := remotebox.New(addresses, daemon.OperatorToken().Reveal(), nil)
	defer backend.Close()
	if err := backend.Ping(t.Context()); err != nil {
		t.Errorf("got %v although the second address is right", err)
	}
}
