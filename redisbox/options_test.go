package redisbox

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

func TestOpenRefusesBadOption(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	for field, options := range map[string]Options{
		"MaxBodyBytes":   {MaxBodyBytes: -1},
		"Replicas":       {Replicas: -1},
		"ReplicaTimeout": {ReplicaTimeout: -time.Second},
		"RetryFor":       {RetryFor: -1},
		"MaxDeliveries":  {Defaults: driver.Config{MaxDeliveries: -2}},
	} {
		b, err := Open(t.Context(), client, &options)
		if err == nil {
			_ = b.Close()
		}
		expectBadOption(t, err, field)
	}
}

func expectBadOption(t *testing.T, err error, field string) {
	t.Helper()
	if detail, ok := errors.AsType[*driver.Error](err); !ok || detail.Code != driver.ErrInvalid || detail.Field != field {
		t.Errorf("%s: got %v, want ErrInvalid that names it", field, err)
	}
}
