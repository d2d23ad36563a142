package diskbox

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// sendUnique sends a message with a unique key, and returns the result.
func sendUnique(t *testing.T, q driver.Queue, msg driver.Outgoing) driver.Sent {
	t.Helper()
	sent, err := q.Send(t.Context(), []driver.Outgoing{msg})
	if err != nil {
		t.Fatal(err)
	}
	return sent[0]
}

// A version that knows no unique keys leaves their records behind when it removes messages.
func TestUniqueKeysAreReadAgainAfterEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := openQueue(t, b, "a")
		kept := sendUnique(t, q, driver.Outgoing{Body: []byte("kept"), UniqueKey: "kept"}).ID
		b.journal.mu.Lock()
		shard := host.ShardID{Queue: 1}
		b.journal.ledger.change(shard).Keys = 0
		gone := &engine.Entry{Seq: 77, Content: engine.Content{ID: "gone", Extra: &engine.Extra{
			Unique: &engine.Unique{Key: engine.Digest{1, 2, 3}, Held: true},
		}}}
		b.journal.indexUnique(shard, gone)
		b.journal.mu.Unlock()
		send(t, q, driver.Outgoing{Body: []byte("later")})
		b = m.restart(b, false)
		q = openQueue(t, b, "a")
		if sent := sendUnique(t, q, driver.Outgoing{Body: []byte("again"), UniqueKey: "kept"}); !sent.Duplicate || sent.ID != kept {
			t.Errorf("the key of a message that is there: got %+v, want a duplicate of %s", sent, kept)
		}
		if held := b.journal.ledger.at(host.ShardID{Queue: 1}).Keys; held != 1 {
			t.Errorf("%d keys are held, want 1", held)
		}
		drainBodies(t, q)
		expectNoRecords(t, m.restart(b, false), messageKind, uniqueKind)
	})
}

// Repair rebuilds the records of unique keys, and Check finds what is wrong with them.
func TestRepairRebuildsUniqueKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := openQueue(t, b, "a")
		first := sendUnique(t, q, driver.Outgoing{Body: []byte("one"), UniqueKey: "one"}).ID
		second := sendUnique(t, q, driver.Outgoing{Body: []byte("two"), UniqueKey: "two", Delay: time.Hour}).ID
		b.journal.mu.Lock()
		shard := host.ShardID{Queue: 1}
		b.journal.remove(uniqueKind, shard, 1)
		b.journal.number(uniqueKind, shard, 99)
		b.journal.batch.Set(b.journal.key, []byte("damaged"))
		b.journal.mu.Unlock()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if repaired, err := Repair(t.Context(), "queues", offline(m.disk)); err != nil || repaired.Rebuilt != 1 || repaired.Removed != 1 {
			t.Errorf("repaired %+v, %v; want one record rebuilt and one removed", repaired, err)
		}
		if report, err := Check(t.Context(), "queues", offline(m.disk)); err != nil || len(report.Problems) > 0 {
			t.Errorf("check after the repair: %+v, %v", report, err)
		}
		q = openQueue(t, m.restart(nil, false), "a")
		for key, want := range map[string]string{"one": first, "two": second} {
			if sent := sendUnique(t, q, driver.Outgoing{UniqueKey: key}); !sent.Duplicate || sent.ID != want {
				t.Errorf("key %s: got %+v, want a duplicate of %s", key, sent, want)
			}
		}
	})
}

// FuzzUnique reads records of unique keys with a valid hash and arbitrary content. One that is
// read is written as it was.
func FuzzUnique(f *testing.F) {
	key := appendNumberKey(nil, uniqueKind, host.ShardID{Queue: 1, Shard: 2}, 3)
	var w writer
	e := &engine.Entry{Content: engine.Content{ID: "id", Extra: &engine.Extra{Unique: &engine.Unique{Key: engine.Digest{4}, Held: true}}}}
	w.unique(e)
	f.Add(slices.Clone(w.buf))
	f.Add([]byte{recordVersion, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, content []byte) {
		var w writer
		w.begin(key)
		w.buf = append(w.buf, content...)
		record := slices.Clone(w.end())
		held, ok := readUnique(key, record)
		if _, sound := readUnique(key, content); sound {
			t.Error("a record without a hash is read")
		}
		if !ok {
			return
		}
		again := engine.Entry{Content: engine.Content{ID: held.ID, Extra: &engine.Extra{Unique: &engine.Unique{Key: held.Key}}}}
		w.begin(key)
		w.unique(&again)
		if got := w.end(); held.Seq != 3 || len(got) > len(record) || (len(got) == len(record) && !bytes.Equal(got, record)) {
			t.Errorf("%x is read as %+v, and written %x", record, held, got)
		}
	})
}
