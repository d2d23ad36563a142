package oapapi_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// TestConformanceOverLoopbackAndRedis runs the suite through frames on a server of
// its own, on the real clock.
func TestConformanceOverLoopbackAndRedis(t *testing.T) {
	volume.OnlyAtLength(t, "it takes minutes of real time")
	server := redistest.Standalone(t)
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			client, err := rueidis.NewClient(server.ClientOption())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			redis, err := redisbox.Open(t.Context(), client, &redisbox.Options{Prefix: redistest.Prefix(t)})
			if err != nil {
				t.Fatal(err)
			}
			d := newDaemon(t, redis, oapapi.Options{})
			return newRemote(t, d, remotebox.New([]string{d.listen(t)}, d.token, nil))
		},
	})
}
