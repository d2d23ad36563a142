package store

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestReserveScalesWithVolume(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, test := range []struct{ total, set, want int64 }{
		{64 * mib, 0, 16 * mib},
		{256 * mib, 0, 16 * mib},
		{1000 * mib, 0, 50 * mib},
		{100 * gib, 0, gib},
		{100 * gib, 3 * gib, 3 * gib},
		{256 * mib, 1 * mib, 1 * mib},
		{256 * mib, -1, 0},
	} {
		mem := vfs.NewMem()
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: uint64(test.total / 2), TotalBytes: uint64(test.total)})
		o := memOptions(mem)
		o.ReserveBytes = test.set
		s := mustOpen(t, testDir, o)
		if got := s.Health().ReserveBytes; got != uint64(test.want) {
			t.Errorf("of %d bytes with %d set, %d are in reserve, want %d", test.total, test.set, got, test.want)
		}
		if err := s.Admit(); err != nil {
			t.Errorf("of %d bytes, half free: %v", test.total, err)
		}
		mustClose(t, s)
	}
}

func TestMemoryTableScalesWithVolume(t *testing.T) {
	for total, ballast := range map[uint64]int64{16 << 20: 1 << 20, 256 << 20: 4 << 20, 2 << 30: 16 << 20, 1 << 40: 16 << 20} {
		mem := vfs.NewMem()
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: total, TotalBytes: total})
		o := Options{FS: mem}
		if o.fitVolume("/"); o.MemTableBytes != int(min(ballast, 8<<20)) || o.BallastBytes != ballast {
			t.Errorf("a volume of %d bytes has tables of %d bytes and a ballast of %d", total, o.MemTableBytes, o.BallastBytes)
		}
	}
}

func TestReserveIsLoggedWhenEnteredAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		var log bytes.Buffer
		o := memOptions(mem)
		o.ReserveBytes, o.Logger = 1000, slog.New(slog.NewTextHandler(&log, nil))
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 5000, TotalBytes: 9000})
		s := mustOpen(t, testDir, o)
		defer mustClose(t, s)
		want := func(lines ...string) {
			t.Helper()
			_ = s.Admit()
			_ = s.Admit()
			for _, line := range lines {
				if strings.Count(log.String(), line) != 1 {
					t.Errorf("%q is not once in %s", line, log.String())
				}
			}
			log.Reset()
		}
		want("msg=disk.reserve dir=/data/mail free_bytes=5000 reserve_bytes=1000 volume_bytes=9000 sends_refused=false")
		for _, step := range []struct {
			free uint64
			line string
		}{{999, "level=ERROR msg=disk.reserve_entered"}, {5000, "level=INFO msg=disk.reserve_left"}} {
			mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: step.free, TotalBytes: 9000})
			time.Sleep(spaceEvery)
			want(step.line)
		}
	})
}
