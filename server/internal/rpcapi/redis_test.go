package rpcapi_test

import (
	"os"
	"testing"

	"connectrpc.com/connect"
	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
)

// TestConformanceOverLoopbackAndRedis runs the suite through gRPC on a server of
// its own, on the real clock.
func TestConformanceOverLoopbackAndRedis(t *testing.T) {
	if os.Getenv("MAILBOX_SERVERS") == "" {
		t.Skip("needs redis-server: set MAILBOX_SERVERS=1 where it is installed")
	}
	t.Parallel() // it mostly waits
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
			d := newDaemonOnLoopback(t, redis, capability.NewKeyRing(capability.NewKey()))
			return newRPCOpener(d, d.mint(t, ""), connect.WithGRPC())
		},
	})
}
