package sqsapi_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// inRealTime are cases, as "ID/title", that a client cannot pass on the real clock.
var inRealTime = map[string]string{
	"VIS-6/of an ack and a receiver that waits for the expiry, exactly one wins": "a standard queue of SQS confirms an ack that " +
		"comes too late, and may not delete the message; sqsbox then returns ErrUnavailable, which the case does not expect",
}

// TestConformanceOnRedis runs the suite through sqsbox and the SDK on Redis, with the
// real clock.
func TestConformanceOnRedis(t *testing.T) {
	volume.OnlyAtLength(t, "it takes minutes of real time")
	server := redistest.Standalone(t)
	drivertest.Run(t, drivertest.Backend{
		Open: func(t testing.TB) driver.Opener {
			sqstest.SkipListed(t, sqstest.Unsupported, inRealTime)
			if t, ok := t.(*testing.T); ok {
				t.Parallel() // cases mostly wait
			}
			client, err := rueidis.NewClient(server.ClientOption())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			backend, err := redisbox.Open(t.Context(), client, &redisbox.Options{Prefix: redistest.Prefix(t), MaxBodyBytes: sqsapi.MaxPayloadBytes})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = backend.Close() })
			return openPair(t, serve(t, setup{opener: backend}))
		},
		Restart: restartClient, Tick: time.Second,
	})
}
