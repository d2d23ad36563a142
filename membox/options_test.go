package membox_test

import (
	"errors"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

func TestBadOptionIsRefusedWhenQueueIsOpened(t *testing.T) {
	for field, options := range map[string]membox.Options{
		"MaxBodyBytes":  {MaxBodyBytes: -1},
		"MaxDeliveries": {Defaults: driver.Config{MaxDeliveries: -2}},
	} {
		b := membox.New(&options)
		_, err := b.OpenQueue(t.Context(), "orders")
		expectBadOption(t, err, field)
		expectBadOption(t, b.ConfigureQueue(t.Context(), "orders", driver.Config{}), field)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func expectBadOption(t *testing.T, err error, field string) {
	t.Helper()
	if detail, ok := errors.AsType[*driver.Error](err); !ok || detail.Code != driver.ErrInvalid || detail.Field != field {
		t.Errorf("%s: got %v, want ErrInvalid that names it", field, err)
	}
}
