package redisbox_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/registry"
)

func TestRES3AddressesLeadOnlyToGivenServers(t *testing.T) {
	server := redistest.SharedServer(t)
	here := openBackend(t, server.ClientOption(), &redisbox.Options{Prefix: redistest.Prefix(t)})
	there := openBackend(t, server.ClientOption(), &redisbox.Options{Prefix: redistest.Prefix(t)})
	opener, err := redisbox.URLOpener(map[string]*redisbox.Backend{
		"redis://Cache.local": here, "redis://cache.local:6379?db=2": there, "redis+cluster://[::1]:7000": there,
	})
	if err != nil {
		t.Fatal(err)
	}
	schemes := registry.Schemes{ByScheme: map[string]registry.Scheme{
		"redis": opener, "rediss": opener, "redis+cluster": opener, "memory": opener,
	}}
	for address, want := range map[string]struct {
		backend *redisbox.Backend
		name    string
	}{
		"redis://cache.local/orders":            {here, "orders"},
		"redis://cache.local:6379/orders?db=0":  {here, "orders"},
		"redis://CACHE.local/a%2Fb%3Fc":         {here, "a/b?c"},
		"redis://cache.local/responses:7?db=2":  {there, "responses:7"},
		"redis+cluster://[::1]:7000/%C3%A4/x y": {there, "ä/x y"},
	} {
		q, err := schemes.OpenQueue(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte(address)}}); err != nil {
			t.Fatal(err)
		}
		got, err := openNamed(t, want.backend, want.name).Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		if err != nil || len(got) != 1 || string(got[0].Body) != address {
			t.Errorf("%s did not lead to %q: %d messages, %v", address, want.name, len(got), err)
		}
		if _, err := q.Purge(t.Context()); err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	for address, want := range map[string]driver.Code{
		"redis://other.local/orders":               driver.ErrForbidden,
		"redis://cache.local:6380/orders":          driver.ErrForbidden,
		"redis://cache.local/orders?db=1":          driver.ErrForbidden,
		"redis://cache.local.evil/orders":          driver.ErrForbidden,
		"rediss://cache.local/orders":              driver.ErrForbidden,
		"redis://user:secret@cache.local/orders":   driver.ErrInvalid,
		"redis://cache.local/orders?db=2&db=0":     driver.ErrInvalid,
		"redis://cache.local/orders?db=-1":         driver.ErrInvalid,
		"redis://cache.local/orders?tls=off":       driver.ErrInvalid,
		"redis://cache.local/orders#1":             driver.ErrInvalid,
		"redis://cache.local":                      driver.ErrInvalid,
		"redis://cache.local/":                     driver.ErrInvalid,
		"redis:///orders":                          driver.ErrInvalid,
		"memory://orders":                          driver.ErrInvalid,
		"redis://cache.local/orders%00":            driver.ErrInvalid,
		"redis+sentinel://cache.local:6379/orders": driver.ErrUnresolved,
	} {
		if q, err := schemes.OpenQueue(t.Context(), address); !errors.Is(err, want) {
			t.Errorf("%s: got %v, %v, want %s", address, q, err, want)
		}
	}
}

func TestURLOpenerRefusesBadServers(t *testing.T) {
	for address, want := range map[string]driver.Code{
		"redis://cache.local:6379?db=0": driver.ErrConflict,
		"redis://other/orders":          driver.ErrInvalid,
		"redis://user:secret@other":     driver.ErrInvalid,
		"redis://%zz":                   driver.ErrInvalid,
		"cache.local":                   driver.ErrInvalid,
	} {
		servers := map[string]*redisbox.Backend{"redis://cache.local": {}, address: {}}
		if _, err := redisbox.URLOpener(servers); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %s", address, err, want)
		}
	}
}

// target reads a URL of mailbox.OpenURL.
func target(t *testing.T, text string) driver.URLTarget {
	t.Helper()
	address, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	read, err := driver.ReadURL(address)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestURLPortsOfSentinelsDoNotShareBackend(t *testing.T) {
	implicit := target(t, "redis+sentinel://host/orders?master_set=main").Key
	if implicit == target(t, "redis+sentinel://host:6379/orders?master_set=main").Key {
		t.Error("the port of sentinels and that of Redis share a backend")
	}
	if implicit != target(t, "redis+sentinel://host:26379/orders?master_set=main").Key {
		t.Error("the port of sentinels has two backends, with and without its number")
	}
}

func TestURLOpenOfSilentServerEndsWithContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // connects, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = target(t, "redis://"+listener.Addr().String()+"/orders").Open(ctx)
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 8*time.Second { // it would take Options.RetryFor, 10 s
		t.Errorf("got %v after %v, want the error of the context at once", err, took)
	}
}

// TestURLAsksForReplicas opens a server without replicas, which cannot confirm.
func TestURLAsksForReplicas(t *testing.T) {
	t.Parallel() // it waits for replicas
	server := redistest.SharedServer(t)
	for parameter, want := range map[string]error{"": nil, "&replicas=1": driver.ErrUnavailable} {
		backend, err := target(t, "redis://"+server.Addr()+"/orders?prefix="+redistest.Prefix(t)+parameter).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q, err := backend.OpenQueue(t.Context(), "orders")
		if err == nil {
			_, err = q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}})
		}
		if !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", parameter, err, want)
		}
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	}
}
