package diskbox

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func TestBadOptionIsRefusedByOpen(t *testing.T) {
	for field, options := range map[string]Options{
		"MaxBodyBytes":  {MaxBodyBytes: -1},
		"SyncEvery":     {Sync: SyncInterval, SyncEvery: -time.Second},
		"Sync":          {Sync: 99},
		"MaxDeliveries": {Defaults: driver.Config{MaxDeliveries: -2}},
	} {
		b, err := Open(t.Context(), filepath.Join(t.TempDir(), "queues"), &options)
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
