package dynamoreply_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// suite opens stores on dynalite, and a second client of each that acts as another
// process: the writes of the first do not wake its waits.
func suite(t *testing.T, virtual bool) drivertest.ReplyStore {
	server := dynamotest.Shared(t)
	tables := make(map[driver.ReplyStore]string)
	open := func(t testing.TB, table string) *dynamoreply.Store {
		w := newWire(server)
		w.virtual, w.shows = virtual, virtual
		return w.open(t, server, table, nil)
	}
	return drivertest.ReplyStore{
		Open: func(t testing.TB) driver.ReplyStore {
			table := dynamotest.Table()
			store := open(t, table)
			tables[store] = table
			return store
		},
		Another: func(t testing.TB, store driver.ReplyStore) driver.ReplyStore { return open(t, tables[store]) },
		Late:    dynamoreply.DefaultPollMax,
		Virtual: virtual,
	}
}

func TestDynamoIsAReplyStore(t *testing.T) {
	t.Parallel()
	drivertest.RunReplyStore(t, suite(t, true))
}

// On the real clock dynalite is used unchanged: it does not return the item when a
// condition does not hold.
func TestDynamoIsAReplyStoreOnTheRealClock(t *testing.T) {
	t.Parallel()
	store := suite(t, false)
	store.Tick = 500 * time.Millisecond
	drivertest.RunReplyStore(t, store)
}
