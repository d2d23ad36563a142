package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestUniqueKeysOfTenantLeaveOthersRoom: a tenant that sends unique keys to many queues leaves room for
// others, and has its share back when the messages are done, also without its acks (OPS-4).
func TestUniqueKeysOfTenantLeaveOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		b := newBench(t, backend, broker.Limits{MaxDedupKeys: 80})
		hostile, victim := b.as("hostile"), b.as("victim")
		used := func() int64 {
			for _, stats := range b.Shares() {
				if stats.Resource == "unique keys" {
					return stats.Used
				}
			}
			t.Fatal("unique keys are not among the shares")
			return 0
		}
		next := 0
		fill := func(c broker.Caller) (sent int, refusal error) {
			for sent = 0; sent <= 80; sent++ {
				next++
				if err := sendUnique(t, c, fmt.Sprintf("q%d", sent%7), fmt.Sprint(next)); err != nil {
					return sent, err
				}
			}
			return sent, nil
		}
		sent, refusal := fill(hostile)
		if sent > 70 || used() != int64(sent) {
			t.Errorf("one tenant alone has %d of 80 keys, %d are counted", sent, used())
		}
		expectCode(t, refusal, driver.ErrFull, "a tenant that has used up its share")
		if e, ok := errors.AsType[*driver.Error](refusal); !ok || !strings.Contains(e.Detail, "unique keys share of") ||
			!strings.Contains(e.Detail, "global_dedup 80") || e.RetryAfter <= 0 {
			t.Errorf("the refusal does not name the share: %v", refusal)
		}
		b.send(hostile, "q0", "a message without a key")
		before := used()
		for range 300 { // duplicates cost nothing
			if err := sendUnique(t, victim, "q", "k"); err != nil {
				t.Fatalf("another tenant's send: %v", err)
			}
		}
		if got := used(); got != before+1 {
			t.Errorf("one key of another tenant counts as %d", got-before)
		}
		for range 300 { // messages that are done give their keys back
			time.Sleep(time.Second / 4) // the share has room for a few, and is compared once a second
			next++
			if err := sendUnique(t, victim, "busy", fmt.Sprint(next)); err != nil {
				t.Fatalf("a tenant whose messages are acked: %v", err)
			}
			got := b.receive(victim, "busy", 1)
			if err := victim.Ack(t.Context(), "busy", []string{got[0].Receipt}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 7 { // without the broker
			q, err := backend.OpenQueue(t.Context(), mustName(b.BackendName("hostile", fmt.Sprintf("q%d", i))))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if again, _ := fill(hostile); again < sent/2 {
			t.Errorf("after its messages were purged there is room for %d keys", again)
		}
		b.Measure(t.Context())
		if got := used(); got > 80 {
			t.Errorf("%d keys count", got)
		}
	})
}

// TestMeasuringCountsUniqueKeys: a scrape gives back the keys of messages that are done.
func TestMeasuringCountsUniqueKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxDedupKeys: 80})
		c := b.as("tenant")
		for i := range 10 {
			if err := sendUnique(t, c, "q", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range b.receive(c, "q", 6) {
			if err := c.Ack(t.Context(), "q", []string{d.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
		b.Measure(t.Context())
		for _, stats := range b.Shares() {
			if stats.Resource == "unique keys" && stats.Used != 4 {
				t.Errorf("%d keys count, want those of 4 messages", stats.Used)
			}
		}
		if got := b.figure("mailbox_unique_keys", "queue=tenant/q"); got != 4 {
			t.Errorf("mailbox_unique_keys is %v, want 4", got)
		}
		if got := b.figure("mailbox_unique_keys_limit", "queue=tenant/q"); got != 1_000_000 {
			t.Errorf("mailbox_unique_keys_limit is %v", got)
		}
	})
}

// TestUnsentUniqueKeysDoNotCount: a message that is refused takes no room.
func TestUnsentUniqueKeysDoNotCount(t *testing.T) {
	b := memory(t, broker.Limits{MaxDedupKeys: 80})
	c := b.as("tenant")
	b.send(c, "q", "so that the queue exists")
	messages := []broker.Outgoing{{Outgoing: driver.Outgoing{Body: make([]byte, driver.DefaultMaxBodyBytes+1), UniqueKey: "k"}}}
	for range 100 {
		if _, err := c.Send(t.Context(), "q", messages); !errors.Is(driver.At(err, 0), driver.ErrTooLarge) {
			t.Fatalf("an invalid message takes room: %v", err)
		}
	}
}

func sendUnique(t *testing.T, c broker.Caller, queue, key string) error {
	t.Helper()
	_, err := c.Send(t.Context(), queue, []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte("x"), UniqueKey: key}}})
	return err
}
