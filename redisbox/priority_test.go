package redisbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// sendPriority sends a message with a priority.
func sendPriority(t *testing.T, q *handle, body string, priority int) (id string) {
	t.Helper()
	return sendOne(t, q, driver.Outgoing{Body: []byte(body), Priority: priority}).ID
}

// TestWaitingPrioritiesChangeSchema: processes of versions without priorities, which would not
// find these messages, get an error while there are some.
func TestWaitingPrioritiesChangeSchema(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)})
	q := openQueue(t, b)
	wantSchema := func(want string) {
		t.Helper()
		if got := field(t, b, keyOf(q, "meta"), "schema"); got != want {
			t.Errorf("got schema %s, want %s", got, want)
		}
	}
	send(t, q, "plain")
	wantSchema("2")
	sendPriority(t, q, "urgent", 5)
	wantSchema("4")
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("5")
	wantStats(t, q, driver.Stats{Ready: 2, Paused: true})
	if err := q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("4")
	urgent := receive(t, q, 1, hold)[0]
	if string(urgent.Body) != "urgent" {
		t.Errorf("got %q", urgent.Body)
	}
	wantSchema("2")
	if err := q.Nack(t.Context(), []driver.Nack{{Receipt: urgent.Receipt}}); err != nil {
		t.Fatal(err)
	}
	wantSchema("4")
	if _, err := q.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSchema("2")
}

// TestAgeingIsReadFromStoredSettings: versions before have stored PriorityAging in the settings,
// and nowhere else.
func TestAgeingIsReadFromStoredSettings(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t, redistest.ClockSkew(0))
	client := connect(t, server.ClientOption())
	q := configured(t, open(t, client, nil), driver.Config{PriorityAging: 10 * time.Minute})
	sendPriority(t, q, "old", 1)
	if err := server.SetClockSkew(time.Hour); err != nil {
		t.Fatal(err)
	}
	sendPriority(t, q, "new", 6)
	sendPriority(t, q, "newest", 8)
	overwrite(t, client, keyOf(q, "meta"), "aging", "")
	if got := drain(t, q); got != "newest old new" {
		t.Errorf("got %q: an hour is six levels", got)
	}
}

// TestRetentionPassesOverDamagedPriorities: retention by count takes the message that it can
// find, and the damaged one becomes a dead letter when it is delivered.
func TestRetentionPassesOverDamagedPriorities(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.SharedServer(t).ClientOption())
	q := configured(t, open(t, client, &Options{Prefix: redistest.Prefix(t)}), driver.Config{RetainReady: driver.Retention{Count: 2}})
	damaged := sendPriority(t, q, "damaged", 3)
	overwrite(t, client, keyOf(q, "state"), damaged, "short")
	expired := sendPriority(t, q, "expired", 3)
	sendPriority(t, q, "whole", 3)
	if got := receive(t, q, 1, hold); string(got[0].Body) != "whole" {
		t.Errorf("got %q", got[0].Body)
	}
	reasons := make(map[string]driver.Reason)
	for _, dead := range deadLetters(t, q) {
		reasons[dead.ID] = dead.Reason
	}
	if len(reasons) != 2 || reasons[damaged] != driver.ReasonIntegrity || reasons[expired] != driver.ReasonExpired {
		t.Errorf("dead letters: %v", reasons)
	}
	wantStats(t, q, driver.Stats{InFlight: 1, Dead: 2})
}

// TestPeekPagesThroughPriorities: messages of all priorities are listed by place, also where a
// page ends between them.
func TestPeekPagesThroughPriorities(t *testing.T) {
	t.Parallel()
	q := openQueue(t, open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: redistest.Prefix(t)}))
	const messages = 350
	for from := 0; from < messages; from += 50 {
		msgs := make([]driver.Outgoing, 50)
		for i := range msgs {
			msgs[i] = driver.Outgoing{Body: fmt.Append(nil, from+i), Priority: (from + i) * 7 % 10}
		}
		if _, err := q.Send(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for seen, err := range q.Peek(t.Context(), driver.Query{States: []driver.State{driver.StateReady}}) {
		if err != nil {
			t.Fatal(err)
		}
		if string(seen.Body) != fmt.Sprint(n) || seen.Priority != n*7%10 {
			t.Fatalf("message %d is %q with priority %d", n, seen.Body, seen.Priority)
		}
		n++
	}
	if n != messages {
		t.Errorf("got %d messages, want %d", n, messages)
	}
}

// BenchmarkReceivePriorities sends, receives and acks messages while others wait. Compare
// redis-µs/op with few and with many that wait: a receive does not look at them.
func BenchmarkReceivePriorities(b *testing.B) {
	for _, test := range []struct {
		name                string
		waiting, priorities int
	}{
		{"plain 1000", 1000, 1},
		{"plain 100000", 100_000, 1},
		{"priorities 1000", 1000, 10},
		{"priorities 100000", 100_000, 10},
	} {
		for _, batch := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/batches of %d", test.name, batch), func(b *testing.B) {
				benchmarkReceive(b, test.waiting, test.priorities, batch)
			})
		}
	}
}

func benchmarkReceive(b *testing.B, waiting, priorities, batch int) {
	server := redistest.SharedServer(b)
	q := openQueue(b, open(b, connect(b, server.ClientOption()), &Options{Prefix: redistest.Prefix(b)}))
	sent := 0
	fill := func(n int) {
		b.Helper()
		for n > 0 {
			msgs := make([]driver.Outgoing, min(n, 256))
			for i := range msgs {
				msgs[i] = driver.Outgoing{Body: make([]byte, 256), Priority: (sent + i) % priorities}
			}
			if _, err := q.Send(b.Context(), msgs); err != nil {
				b.Fatal(err)
			}
			sent, n = sent+len(msgs), n-len(msgs)
		}
	}
	fill(waiting)
	before := processorTime(b, server)
	b.ResetTimer()
	for range (b.N + batch - 1) / batch {
		fill(batch)
		got := receive(b, q, batch, hold)
		receipts := make([]driver.Receipt, len(got))
		for i := range got {
			receipts[i] = got[i].Receipt
		}
		if err := q.Ack(b.Context(), receipts); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric((processorTime(b, server)-before)/float64(b.N)*1e6, "redis-µs/op")
}
