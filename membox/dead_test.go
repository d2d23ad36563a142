package membox_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// openDead returns a queue with this many dead letters, whose bodies are their numbers.
func openDead(t *testing.T, letters int) driver.Queue {
	t.Helper()
	b := membox.New(&membox.Options{Defaults: driver.Config{MaxDead: letters}})
	q, err := b.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for i := range letters {
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: fmt.Append(nil, i)}}); err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		if err != nil || len(got) != 1 {
			t.Fatalf("received %d messages, %v", len(got), err)
		}
		if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// TestFewDeadLettersCostLittleAmongMany: a page of the console reads the first of many dead letters, and must not
// copy all of them under the lock of the queue.
func TestFewDeadLettersCostLittleAmongMany(t *testing.T) {
	q := openDead(t, 20_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	taken := 0
	for _, err := range q.DeadLetters(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if taken++; taken == 100 {
			break
		}
	}
	runtime.ReadMemStats(&after)
	if copied := after.TotalAlloc - before.TotalAlloc; copied > 1<<20 {
		t.Errorf("100 of 20,000 dead letters allocated %d bytes, want at most 1 MiB", copied)
	}
}

// TestDeadLettersAreListedOnceWhileOthersLeave: the list is read in pages, and letters that leave between two of
// them do not hide or repeat others.
func TestDeadLettersAreListedOnceWhileOthersLeave(t *testing.T) {
	q := openDead(t, 1000)
	listed := 0
	for letter, err := range q.DeadLetters(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if got := string(letter.Body); got != fmt.Sprint(listed) {
			t.Fatalf("letter %d is %s", listed, got)
		}
		listed++
		if listed%2 == 0 {
			continue
		}
		if n, err := q.Discard(t.Context(), []string{letter.ID}); err != nil || n != 1 {
			t.Fatalf("discarded %d, %v", n, err)
		}
	}
	if listed != 1000 {
		t.Errorf("listed %d dead letters, want 1000", listed)
	}
}
