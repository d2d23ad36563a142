package redisbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

func setMemory(t *testing.T, server *redistest.Server, most string) {
	t.Helper()
	if _, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory", most); err != nil {
		t.Fatal(err)
	}
}

// A consumer that starts while the server is out of memory must be able to open the queue
// that fills it, or no consumer can drain it.
func TestExistingQueueCanBeOpenedWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	send(t, openQueue(t, open(t, connect(t, server.ClientOption()), nil)), "a")
	setMemory(t, server, "1")
	q, err := open(t, connect(t, server.ClientOption()), nil).OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	got := receive(t, q, 1, hold)
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
}

// The same holds for changing its configuration, even while its dead letters cannot be
// moved. A new queue needs memory.
func TestExistingQueueCanBeConfiguredWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	b := open(t, connect(t, server.ClientOption()), nil)
	q := configured(t, b, driver.Config{DeadLetterTo: "dlq"})
	send(t, q, "a")
	got := receive(t, q, 1, hold)
	setMemory(t, server, "1")
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.ConfigureQueue(ctx, "orders", driver.Config{DeadLetterTo: "dlq", MaxMessages: 5}); err != nil {
		t.Errorf("configure: %v", err)
	}
	if config, err := b.QueueConfig(ctx, "orders"); err != nil || config.MaxMessages != 5 {
		t.Errorf("got the configuration %+v, error %v", config, err)
	}
	wantCode(t, b.ConfigureQueue(ctx, "another", driver.Config{}), driver.ErrFull)
	_, err := b.OpenQueue(ctx, "another")
	wantCode(t, err, driver.ErrFull)
}

// Stats must answer while dead letters cannot be forwarded.
func TestStatsAnswersWhileForwardingFails(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	b := open(t, connect(t, server.ClientOption()), nil)
	q := configured(t, b, driver.Config{DeadLetterTo: "dlq"})
	send(t, q, "a")
	got := receive(t, q, 1, hold)
	setMemory(t, server, "1")
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := q.Stats(ctx); err != nil {
		t.Errorf("stats: %v", err)
	}
}

// SND-4, SND-6: sent messages of a batch are reported as sent although the server ran out
// of memory before the others.
func TestBatchCutByMemoryKeepsPositions(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	send(t, q, "first")
	info, err := server.Info(t.Context(), "memory")
	if err != nil {
		t.Fatal(err)
	}
	used := int(shard.Number(info["used_memory"]))
	setMemory(t, server, shard.Decimal(float64(used+24<<20)))
	msgs := make([]driver.Outgoing, 64)
	for i := range msgs {
		msgs[i].Body = make([]byte, 1<<20)
	}
	sent, err := q.Send(t.Context(), msgs)
	wantCode(t, err, driver.ErrFull)
	done := 0
	for i := range msgs {
		if i < len(sent) && sent[i].ID != "" {
			done++
		}
	}
	stats, err2 := q.Stats(t.Context())
	if err2 != nil {
		t.Fatal(err2)
	}
	if stats.Ready-1 != done || done == 0 {
		t.Errorf("%d messages of the batch are in the queue, %d are reported as sent, error %v", stats.Ready-1, done, err)
	}
	batch, ok := errors.AsType[*driver.BatchError](err)
	if !ok {
		t.Fatalf("got %v, want an error for each position", err)
	}
	for i, err := range batch.Errs {
		if (err == nil) != (sent[i].ID != "") {
			t.Errorf("position %d: got id %q and error %v", i, sent[i].ID, err)
		}
	}
}

// Rule 11: failed sends record nothing.
func TestSendWithoutMemoryLeavesNoDedupKey(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	b := open(t, connect(t, server.ClientOption()), nil)
	q := configured(t, b, driver.Config{Shards: 8})
	msg, _ := apart(q, "one body")
	setMemory(t, server, "1")
	_, err := q.Send(t.Context(), []driver.Outgoing{msg})
	wantCode(t, err, driver.ErrFull)
	setMemory(t, server, "0")
	msg.Body = []byte("another body")
	if _, err := q.Send(t.Context(), []driver.Outgoing{msg}); err != nil {
		t.Fatal(err)
	}
}

// A message that cannot be moved for lack of memory stays in its place.
func TestMoveWithoutMemoryMovesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	b := open(t, connect(t, server.ClientOption()), nil)
	q, shelter := openQueue(t, b), openNamed(t, b, "shelter")
	send(t, q, "a", "b")
	setMemory(t, server, "1")
	n, err := q.Move(t.Context(), "shelter", 0)
	wantCode(t, err, driver.ErrFull)
	wantStats(t, q, driver.Stats{Ready: 2})
	wantStats(t, shelter, driver.Stats{})
	setMemory(t, server, "0")
	if more, err := q.Move(t.Context(), "shelter", 0); err != nil || n != 0 || more != 2 {
		t.Errorf("moved %d without memory, and %d with, error %v; want 0 and 2", n, more, err)
	}
	for i, d := range receive(t, shelter, 2, hold) {
		if string(d.Body) != string("ab"[i]) {
			t.Errorf("got %q, want %q", d.Body, "ab"[i])
		}
	}
}

func TestServerWithoutMemoryRefusesMessages(t *testing.T) {
	server := redistest.Standalone(t)
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	send(t, q, "a", "b", "c")
	if _, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
	_, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("d")}})
	wantCode(t, err, driver.ErrFull)
	if driver.RetryAfter(err) <= 0 {
		t.Error("there is no hint when to try again")
	}
	wantStats(t, q, driver.Stats{Ready: 3})
	got := receive(t, q, 3, hold)
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[1].Receipt}}); err != nil {
		t.Fatal(err)
	}
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[2].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	wantStats(t, q, driver.Stats{Ready: 1, Dead: 1})
	// Of a batch that sends and settles, the settles succeed.
	settling := shard.NewSettleOp(t.Context(), q.Shards[0])
	settling.Add(0, "a", receive(t, q, 1, hold)[0].Receipt, "")
	part := shard.NewSendOp(t.Context(), q.Shards[0])
	part.Add(0, q.Shards[0].NewID(), &driver.Outgoing{Body: []byte("e")}, shard.Extra{})
	q.Shards[0].Perform(t.Context(), &shard.Session{}, []shard.Operation{settling, part})
	if settling.Err != nil || settling.Codes != "" {
		t.Errorf("ack: got codes %q, error %v", settling.Codes, settling.Err)
	}
	wantCode(t, part.Err, driver.ErrFull)
	wantStats(t, q, driver.Stats{Dead: 1})
}

func TestScheduleCanBeReadAndRemovedWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	q := openQueue(t, open(t, connect(t, server.ClientOption()), nil))
	stored, done, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Definition: []byte("{}")})
	if err != nil || !done {
		t.Fatalf("store: %v, %v", done, err)
	}
	setMemory(t, server, "1")
	_, _, err = q.Fire(t.Context(), driver.Firing{Name: "nightly", Revision: stored.Revision, Messages: []driver.DueMessage{{}}})
	wantCode(t, err, driver.ErrFull)
	if read, _, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Revision: 1 << 53}); err != nil || read.Revision != stored.Revision {
		t.Errorf("read: %+v, %v", read, err)
	}
	if _, done, err := q.Fire(t.Context(), driver.Firing{Name: "nightly", Revision: stored.Revision, Remove: true}); err != nil || !done {
		t.Errorf("remove: %v, %v", done, err)
	}
}
