package rpcapi_test

import (
	"testing"

	"connectrpc.com/connect"
	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/redisbox"
)

// TestConformanceOverLoopbackAndRedis runs the suite through gRPC on a server of
// its own, on the real clock.
func TestConformanceOverLoopbackAndRedis(t *testing.T) {
	volume.OnlyAtLength(t, "it takes minutes of real time")
	t.Parallel() // it mostly waits
	server := redistest.Standalone(t)
	drivertest.Run(t, drivertest.Backend{
		ByName: true,
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
			d := newDaemonOnLoopback(t, redis, keyring.New(keyring.NewKey()))
			return newRPCOpener(d, d.mint(t, ""), connect.WithGRPC())
		},
	})
}
