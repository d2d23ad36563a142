package redisbox_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/runnertest"
)

func TestKilledRunnersSendOneMessageForEachDueTime(t *testing.T) {
	t.Parallel()
	runnertest.Kill(t, func() string { return redistest.Standalone(t).Addr() }, func(address string) driver.Opener {
		return openBackend(t, rueidis.ClientOption{InitAddress: []string{address}}, nil)
	})
}
