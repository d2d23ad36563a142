package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// configure creates a queue with this configuration.
func (b *bench) configure(c broker.Caller, queue string, config driver.Config) {
	b.t.Helper()
	if err := c.Configure(b.t.Context(), queue, config); err != nil {
		b.t.Fatalf("configure: %v", err)
	}
}

// fail sends a message and nacks it once.
func (b *bench) fail(c broker.Caller, queue, body, cause string) string {
	b.t.Helper()
	id := b.send(c, queue, body)
	got := b.receive(c, queue, 1)
	if err := c.Nack(b.t.Context(), queue, []broker.Nack{{Receipt: got[0].Receipt, Cause: cause}}); err != nil {
		b.t.Fatalf("nack: %v", err)
	}
	return id
}

// lines returns the lines of the log with this message.
func (b *bench) lines(message string) (lines []map[string]any) {
	b.t.Helper()
	for text := range strings.Lines(b.log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			b.t.Fatal(err)
		}
		if line["msg"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

// expectLine checks that there is one such line, with these attributes.
func (b *bench) expectLine(message string, want map[string]any) {
	b.t.Helper()
	lines := b.lines(message)
	if len(lines) != 1 {
		b.t.Fatalf("%d lines %s, want 1: %v", len(lines), message, lines)
	}
	for name, value := range want {
		if fmt.Sprint(lines[0][name]) != fmt.Sprint(value) {
			b.t.Errorf("%s: %s is %v, want %v", message, name, lines[0][name], value)
		}
	}
}

func TestDeathsRedrivenBeforeAScrapeAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1})
		b.fail(c, "orders", "x", "broken")
		for range 3 {
			if moved, err := c.Redrive(t.Context(), "orders", nil, 0); err != nil || moved != 1 {
				t.Fatal(moved, err)
			}
			got := b.receive(c, "orders", 1)
			if err := c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[0].Receipt}}); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.figure("mailbox_dlq_total", "queue=orders", "reason=max_attempts"); n != 4 {
			t.Errorf("%v deaths are counted, want 4", n)
		}
	})
}

func TestDeathsSentToAnotherQueueAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("acme")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1, DeadLetterTo: "failed"})
		b.fail(c, "orders", "x", "broken")
		b.fail(c, "orders", "y", "broken")
		if n := b.figure("mailbox_dlq_total", "queue=acme/orders", "reason=max_attempts"); n != 2 {
			t.Errorf("%v deaths are counted, want 2", n)
		}
		if got := b.receive(c, "failed", 10); len(got) != 2 {
			t.Errorf("the other queue has %d messages, want 2", len(got))
		}
	})
}

// TestDeathsAreCountedOnceAcrossEviction evicts the queue to make room for others, and
// opens it again.
func TestDeathsAreCountedOnceAcrossEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1})
		for i := range 3 {
			b.make(c, fmt.Sprint("other-", i))
		}
		if err := b.SetLimits(broker.Limits{MaxQueues: 2}); err != nil { // existing queues can still be used
			t.Fatal(err)
		}
		for i := range 3 {
			b.fail(c, "orders", fmt.Sprint(i), "broken")
		}
		for round := range 3 {
			time.Sleep(2 * time.Second)
			if n := b.figure("mailbox_dlq_total", "queue=orders", "reason=max_attempts"); n != 3 {
				t.Errorf("round %d: %v deaths are counted, want 3", round, n)
			}
			for i := range 3 { // more than MaxQueues
				queue := fmt.Sprint("other-", i)
				b.send(c, queue, "x")
				time.Sleep(time.Second)
			}
			if _, err := c.Stats(t.Context(), "orders"); err != nil { // opens it again
				t.Fatal(err)
			}
		}
	})
}

func TestDeathIsLoggedWithoutItsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("acme")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1})
		id := b.fail(c, "orders", "the secret body", "no such customer")
		b.expectLine("message.dead", map[string]any{
			"level": "INFO", "queue": "orders", "tenant": "acme", "msg_id": id, "reason": "max_attempts", "attempt": 1,
		})
		b.expectLine("message.nacked", map[string]any{"level": "DEBUG", "queue": "orders", "msg_id": id, "attempt": 1})
		if _, err := c.Redrive(t.Context(), "orders", []string{id}, 0); err != nil {
			t.Fatal(err)
		}
		b.expectLine("message.redriven", map[string]any{"level": "INFO", "queue": "orders", "tenant": "acme", "count": 1, "msg_ids": []string{id}, "corr_id": "corr-1"})
		for _, text := range []string{"the secret body", "no such customer"} {
			if strings.Contains(b.log.String(), text) {
				t.Errorf("the log holds %q", text)
			}
		}
		traces, err := c.Trace(t.Context(), "orders", id)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []broker.EventKind
		for _, event := range traces.Events {
			kinds = append(kinds, event.Kind)
		}
		if fmt.Sprint(kinds) != "[sent delivered dead-lettered failed redriven]" {
			t.Errorf("the trace is %v", kinds)
		}
	})
}

func TestRemovedDeadLetterIsCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1, RetainDead: driver.Retention{Age: time.Hour}})
		id := b.fail(c, "orders", "x", "broken")
		time.Sleep(2 * time.Hour)
		if n := b.figure("mailbox_dlq_removed_total", "queue=orders"); n != 1 {
			t.Errorf("%v dead letters are counted as removed, want 1", n)
		}
		b.expectLine("message.removed", map[string]any{
			"level": "INFO", "queue": "orders", "msg_id": id, "reason": "max_attempts", "attempt": 1,
		})
		b.configure(c, "news", driver.Config{RetainReady: driver.Retention{Age: time.Hour}, DropExpired: true})
		id = b.send(c, "news", "x")
		time.Sleep(2 * time.Hour)
		if n := b.figure("mailbox_dropped_total", "queue=news"); n != 1 {
			t.Errorf("%v messages are counted as dropped, want 1", n)
		}
		b.expectLine("message.dropped", map[string]any{"queue": "news", "msg_id": id, "reason": "expired"})
	})
}

func TestLinesAboutDeathsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.configure(c, "orders", driver.Config{MaxDeliveries: 1})
		const deaths = 1000
		for i := range deaths {
			b.fail(c, "orders", fmt.Sprint(i), "broken")
		}
		if n := len(b.lines("message.dead")); n != 100 {
			t.Errorf("%d lines about %d deaths at once, want 100", n, deaths)
		}
		b.figure("mailbox_dlq_total", "queue=orders", "reason=max_attempts")
		b.expectLine("message.suppressed", map[string]any{"suppressed": deaths - 100})
		for range 2 {
			b.fail(c, "orders", "x", "broken") // too early
		}
		time.Sleep(time.Minute)
		b.fail(c, "orders", "x", "broken")
		lines := b.lines("message.dead")
		if last := lines[len(lines)-1]; len(lines) != 101 || fmt.Sprint(last["suppressed"]) != "2" {
			t.Errorf("%d lines, the last is %v, want 101 and 2 suppressed", len(lines), last)
		}
	})
}

// TestDeathsBeforeTheBrokerAreNotCounted runs two brokers on one backend, one after the
// other.
func TestDeathsBeforeTheBrokerAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		t.Cleanup(func() { _ = backend.Close() })
		before := newBench(t, backend, broker.Limits{})
		before.configure(before.as(""), "orders", driver.Config{MaxDeliveries: 1})
		before.fail(before.as(""), "orders", "x", "broken")
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		b := newBench(t, backend, broker.Limits{})
		b.fail(b.as(""), "orders", "y", "broken")
		if n := b.figure("mailbox_dlq_total", "queue=orders", "reason=max_attempts"); n != 1 {
			t.Errorf("the second broker counts %v deaths, want 1", n)
		}
		if n := before.figure("mailbox_dlq_total", "queue=orders", "reason=max_attempts"); n != 1 {
			t.Errorf("the first broker counts %v deaths after it was closed, want 1", n)
		}
	})
}
