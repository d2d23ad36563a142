package membox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// A queue has a bound of throttled groups: the refusal names it and says when the next is free. A
// group that is throttled can be throttled for longer, and one whose time is over makes room.
func TestThrottledGroupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(&membox.Options{Defaults: driver.Config{FairGroups: true, GroupLimits: "in-flight=1"}})
		defer func() { _ = backend.Close() }()
		q, err := backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if err := q.Throttle(t.Context(), fmt.Sprint("g", i), time.Minute+time.Duration(i)*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		err = q.Throttle(t.Context(), "one more", time.Hour)
		refused, ok := errors.AsType[*driver.Error](err)
		if !ok || refused.Code != driver.ErrFull || refused.Field != "group" || !strings.Contains(refused.Detail, "1000") || refused.RetryAfter != time.Minute {
			t.Fatalf("one group too many: got %v", err)
		}
		if err := q.Throttle(t.Context(), "g0", 2*time.Minute); err != nil {
			t.Errorf("a group that is throttled: %v", err)
		}
		time.Sleep(time.Minute + 2*time.Second) // g1 is over
		if err := q.Throttle(t.Context(), "one more", time.Hour); err != nil {
			t.Errorf("when one is over: %v", err)
		}
	})
}
