package redisbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
)

func TestRES3AddressesLeadOnlyToGivenServers(t *testing.T) {
	server := redistest.SharedServer(t)
	here := openBackend(t, server.ClientOption(), &redisbox.Options{Prefix: redistest.Prefix(t)})
	there := openBackend(t, server.ClientOption(), &redisbox.Options{Prefix: redistest.Prefix(t)})
	opener, err := redisbox.NewURLOpener(map[string]*redisbox.Backend{
		"redis://Cache.local": here, "redis://cache.local:6379?db=2": there, "redis+cluster://[::1]:7000": there,
	})
	if err != nil {
		t.Fatal(err)
	}
	schemes := mailbox.Schemes{ByScheme: map[string]mailbox.Scheme{
		"redis": opener.OpenURL, "rediss": opener.OpenURL, "redis+cluster": opener.OpenURL, "memory": opener.OpenURL,
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
		if _, err := redisbox.NewURLOpener(servers); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %s", address, err, want)
		}
	}
}
