package broker_test

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestNoQueueHasAReservedName(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	b := newBench(t, backend, broker.Limits{})
	reserved := broker.Reserved("mailbox.log")
	if err := backend.ConfigureQueue(t.Context(), reserved, driver.Config{}); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"", "mailbox.log", "x"} {
		for _, queue := range []string{reserved, strings.TrimPrefix(reserved, "~"), "~" + reserved, "~", "~~"} {
			if name, err := b.BackendName(tenant, queue); err != nil || name == reserved {
				t.Errorf("queue %q of tenant %q is %q, %v", queue, tenant, name, err)
			}
		}
		for queue, err := range b.as(tenant).Queues(t.Context()) {
			t.Errorf("tenant %q sees %q, %v", tenant, queue, err)
		}
	}
	for place, err := range b.AllQueues(t.Context()) {
		t.Errorf("the daemon works on %+v, %v", place, err)
	}
}
