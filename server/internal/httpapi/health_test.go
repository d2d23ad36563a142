package httpapi_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
)

func TestHealthHidesVersionFromStrangers(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	backend := membox.New(nil)
	defer backend.Close()
	b, err := broker.New(broker.Options{Opener: backend, Ring: ring, Revocations: new(revocation.Memory), Verifier: verify.New(ring, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	mint := func(ring *keyring.Ring) string {
		token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		return token.Reveal()
	}
	h := httpapi.New(httpapi.Options{Broker: b, Version: "v9.9.9"})
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9410}
	beyond := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9410}
	socket := &net.UnixAddr{Name: "socket", Net: "unix"}
	for _, c := range []struct {
		name    string
		handler http.Handler
		address net.Addr
		token   string
		told    bool
	}{
		{"loopback", h, loopback, "", true},
		{"unix socket", h, socket, "", true},
		{"beyond this machine", h, beyond, "", false},
		{"beyond, with a token", h, beyond, mint(ring), true},
		{"beyond, with a token of another daemon", h, beyond, mint(keyring.New(keyring.NewKey())), false},
		{"beyond, with garbage", h, beyond, "garbage", false},
		{"listener for metrics", h.Open(), beyond, "", true},
	} {
		for _, path := range []string{"/healthz", "/readyz"} {
			request := httptest.NewRequest(http.MethodGet, "http://192.0.2.1"+path, nil)
			request = request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey, c.address))
			if c.token != "" {
				request.Header.Set("Authorization", "Bearer "+c.token)
			}
			answer := httptest.NewRecorder()
			c.handler.ServeHTTP(answer, request)
			if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), `"version":"v9.9.9"`) != c.told {
				t.Errorf("%s, %s: %d %s", c.name, path, answer.Code, answer.Body)
			}
		}
	}
}
