package sqsbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/sqsbox"
)

func TestBadOptionIsRefusedByNew(t *testing.T) {
	for _, test := range []struct {
		field   string
		options sqsbox.Options
	}{
		{"Poll", sqsbox.Options{Poll: -time.Second}},
		{"Poll", sqsbox.Options{Poll: time.Minute}},
		{"Linger", sqsbox.Options{Linger: -1}},
		{"Parallel", sqsbox.Options{Parallel: -1}},
	} {
		b, err := sqsbox.Open(t.Context(), &stub{}, &test.options)
		if err == nil {
			_ = b.Close()
		}
		expectBadOption(t, err, test.field)
	}
}

func expectBadOption(t *testing.T, err error, field string) {
	t.Helper()
	if detail, ok := errors.AsType[*driver.Error](err); !ok || detail.Code != driver.ErrInvalid || detail.Field != field {
		t.Errorf("%s: got %v, want ErrInvalid that names it", field, err)
	}
}
