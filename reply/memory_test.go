package reply_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/reply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var memoryStore = drivertest.ReplyStore{
	Open:    func(testing.TB) driver.ReplyStore { return reply.NewMemory(nil) },
	Virtual: true,
}

func TestMemoryIsReplyStore(t *testing.T) { drivertest.RunReplyStore(t, memoryStore) }

func TestMemoryIsReplyStoreOnRealClock(t *testing.T) {
	store := memoryStore
	store.Virtual, store.Tick = false, 100*time.Millisecond
	drivertest.RunReplyStore(t, store)
}
