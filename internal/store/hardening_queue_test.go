package store

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// consumed returns a store with a queue of which all but the last ten messages were deleted,
// and the key of the first remaining one.
func consumed(t testing.TB, messages int) (s *Store, cursor []byte) {
	o := memOptions(vfs.NewMem())
	o.MemTableBytes = 128 << 20 // no compaction
	s = mustOpen(t, testDir, o)
	const group = 1000
	b := s.NewBatch()
	for n := range messages {
		b.Set([]byte(numbered("m/", n)), make([]byte, 64))
		if n%group == group-1 {
			if err := s.Commit(b, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range messages - 10 {
		b.DeleteSized([]byte(numbered("m/", n)), 64)
		if n%group == group-1 {
			if err := s.Commit(b, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	return s, []byte(numbered("m/", messages-10))
}

// steps returns how many entries the engine visits to find the first key.
func steps(t testing.TB, s *Store, lo []byte) int {
	it := s.Iterate(lo, []byte("m0"))
	defer func() { _ = it.Close() }()
	if !it.Next() {
		t.Fatalf("nothing there: %v", it.Err())
	}
	stats := it.it.Stats()
	return stats.ForwardStepCount[pebble.InternalIterCall] + stats.ForwardSeekCount[pebble.InternalIterCall]
}

func TestH9ScanFromCursorSkipsDeletedKeys(t *testing.T) {
	volume.Repeats(t)
	messages := 200_000 / stride()
	s, cursor := consumed(t, messages)
	defer mustClose(t, s)
	if n := steps(t, s, cursor); n > 5 {
		t.Errorf("%d steps from the cursor", n)
	}
	// The reason for the cursor.
	if n := steps(t, s, []byte("m/")); n < messages {
		t.Errorf("only %d steps from the beginning; the test does not show what it should", n)
	}
}

func BenchmarkFirstMessageAfter200000Acks(b *testing.B) {
	s, cursor := consumed(b, 200_000)
	defer mustClose(b, s)
	for name, lo := range map[string][]byte{"cursor": cursor, "beginning": []byte("m/")} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				it := s.Iterate(lo, []byte("m0"))
				if !it.Next() {
					b.Fatal(it.Err())
				}
				if err := it.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The engine keeps logs to overwrite them. Their cost is documented at Options.MemTableBytes
// and in the package documentation.
func TestH13LogsTakeAtMostSixTimesTheMemTable(t *testing.T) {
	volume.Repeats(t)
	fs := vfs.NewMem()
	o := memOptions(fs)
	o.MemTableBytes = 1 << 20
	s := mustOpen(t, testDir, o)
	defer mustClose(t, s)
	most := int64(0)
	b := s.NewBatch()
	for n := range 40_000 / stride() { // many times the size of a memtable
		b.Set([]byte(numbered("m/", n)), make([]byte, 1000))
		if n >= 100 {
			b.DeleteSized([]byte(numbered("m/", n-100)), 1000)
		}
		if n%10 != 9 {
			continue
		}
		if err := s.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		if n%1000 == 999 {
			most = max(most, logBytes(t, fs))
		}
	}
	t.Logf("logs take up to %.1f times the memtable", float64(most)/float64(o.MemTableBytes))
	if limit := int64(6 * o.MemTableBytes); most > limit {
		t.Errorf("logs take %d bytes, documented are %d", most, limit)
	}
}

func logBytes(t *testing.T, fs vfs.FS) (sum int64) {
	t.Helper()
	for _, name := range engineFiles(t, fs, isLog) {
		info, err := fs.Stat(name)
		if err != nil {
			continue // overwritten in the meantime
		}
		sum += info.Size()
	}
	return sum
}

func ExampleIterator() {
	s, err := Open(exampleContext, "/mail", &Options{FS: vfs.NewMem()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()

	batch := s.NewBatch()
	for i := range 4 {
		batch.Set(fmt.Appendf(nil, "m/%d", i), fmt.Appendf(nil, "message %d", i))
	}
	if err := s.Commit(batch, true); err != nil {
		fmt.Println(err)
		return
	}

	cursor := []byte("m/2") // the position of the reader: all before is done
	it := s.Iterate(cursor, []byte("m0"))
	for key, value := range it.All() {
		fmt.Printf("%s: %s\n", key, value)
	}
	if err := it.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// m/2: message 2
	// m/3: message 3
}
