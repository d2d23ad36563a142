package store

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const benchValue = 256

// share runs b.N operations in the given number of goroutines, each with its own state.
func share(b *testing.B, callers int, newWorker func() func(n int64) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		work := newWorker()
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := work(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// The baseline of the disk: append, sync, one after the other.
func BenchmarkAppendAndSync(b *testing.B) {
	f, err := vfs.Default.Create(filepath.Join(b.TempDir(), "log"), vfs.WriteCategoryUnspecified)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	record := make([]byte, benchValue+40)
	share(b, 1, func() func(int64) error {
		return func(int64) error {
			if _, err := f.Write(record); err != nil {
				return err
			}
			return f.SyncData()
		}
	})
}

func BenchmarkCommit(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 512} {
		for _, batch := range []int{1, 10} {
			b.Run(fmt.Sprintf("callers=%d/batch=%d", callers, batch), func(b *testing.B) {
				s := mustOpen(b, b.TempDir(), &Options{ReserveBytes: -1, BallastBytes: -1})
				defer mustClose(b, s)
				value := make([]byte, benchValue)
				share(b, callers, func() func(int64) error {
					batchOf := s.NewBatch()
					return func(n int64) error {
						for i := range batch {
							batchOf.Set(fmt.Appendf(nil, "m/%012d/%02d", n, i), value)
						}
						return s.Commit(batchOf, true)
					}
				})
			})
		}
	}
}

// The engine alone, for comparison.
func BenchmarkEngineAlone(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			o := pebble.Options{FormatMajorVersion: pebble.FormatNewest, MemTableSize: 32 << 20, MemTableStopWritesThreshold: 4, FS: vfs.Default, Logger: &fuse{log: slog.New(slog.DiscardHandler)}}
			db, err := pebble.Open(b.TempDir(), &o)
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			value := make([]byte, benchValue)
			share(b, callers, func() func(int64) error {
				return func(n int64) error {
					return db.Set(fmt.Appendf(nil, "m/%012d/00", n), value, pebble.Sync)
				}
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := mustOpen(b, testDir, &Options{FS: vfs.NewMem(), BallastBytes: -1})
	defer mustClose(b, s)
	put(b, s, "key", string(make([]byte, benchValue)))
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = s.Get([]byte("key"), dst[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
