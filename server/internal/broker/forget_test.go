package broker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// used returns how much of a shared resource is used.
func (b *bench) used(resource string) int64 {
	b.t.Helper()
	for _, s := range b.Shares() {
		if s.Resource == resource {
			return s.Used
		}
	}
	b.t.Fatalf("no resource %q", resource)
	return 0
}

// TestQueueStaysOpenWhenSomethingInItIsMissing: a schedule or a message that is not found does not
// mean that the queue was deleted, whose deliveries are not counted any more.
func TestQueueStaysOpenWhenSomethingInItIsMissing(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("acme")
	b.send(c, "jobs", "a")
	b.receive(c, "jobs", 1)
	for name, ask := range map[string]func() error{
		"get":    func() error { _, err := c.Schedule(t.Context(), "jobs", "none"); return err },
		"pause":  func() error { _, err := c.PauseSchedule(t.Context(), "jobs", "none"); return err },
		"resume": func() error { _, err := c.ResumeSchedule(t.Context(), "jobs", "none"); return err },
		"run":    func() error { _, err := c.RunSchedule(t.Context(), "jobs", "none"); return err },
		"remove": func() error { return c.RemoveSchedule(t.Context(), "jobs", "none") },
		"edit": func() error {
			_, err := c.Edit(t.Context(), "jobs", strings.Repeat("0", 26), driver.Edit{Remove: true})
			return err
		},
	} {
		expectCode(t, ask(), driver.ErrNotFound, name)
		if queues, deliveries := b.used("queues"), b.used("in-flight"); queues != 1 || deliveries != 1 {
			t.Fatalf("after %s, %d queues and %d deliveries are counted, want one of each", name, queues, deliveries)
		}
	}
}

// TestRemadeQueueIsCounted deletes a queue whose schedules are run and makes another one of its name.
func TestRemadeQueueIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		b.runSchedules()
		c := b.as("")
		b.send(c, "jobs", "a")
		b.putSchedule(c, "jobs", schedule.Schedule{Name: "often", Every: time.Second})
		synctest.Wait()
		if err := c.Delete(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		b.send(c, "jobs", "a")
		time.Sleep(2 * time.Second) // the broker notices that its queue was deleted
		synctest.Wait()
		if n := b.used("queues"); n != 1 {
			t.Errorf("%d queues are counted, want 1", n)
		}
	})
}
