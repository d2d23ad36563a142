package httpapi_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestConformanceOnRedis runs the suite through HTTP in front of a server of its
// own, on the real clock.
func TestConformanceOnRedis(t *testing.T) {
	volume.OnlyAtLength(t, "it takes minutes of real time")
	server := redistest.Standalone(t)
	drivertest.Run(t, drivertest.Backend{
		ByName: true,
		Open: func(t testing.TB) driver.Opener {
			redis, err := rueidis.NewClient(server.ClientOption())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(redis.Close)
			backend, err := redisbox.Open(t.Context(), redis, &redisbox.Options{Prefix: redistest.Prefix(t)})
			if err != nil {
				t.Fatal(err)
			}
			s := newServiceWith(t, backend, broker.Limits{}, keyring.New(keyring.NewKey()))
			c := newClient(s.client, "http://mailbox", s.mint(t, ""), func() error { return errors.Join(s.close(), backend.Close()) })
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
		Tick: 100 * time.Millisecond,
	})
}
