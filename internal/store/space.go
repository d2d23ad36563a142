package store

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// spaceEvery and spaceBytes are the minimum time, or the number of written bytes, between
	// two checks of the free space; at most a quarter of the reserve, but not less than
	// leastSpaceBytes. An idle store does not check.
	spaceEvery      = 250 * time.Millisecond
	spaceBytes      = 16 << 20
	leastSpaceBytes = 1 << 20
	// reclaimEvery is the minimum time between two reclaims of deleted data while new data is
	// refused and commits continue.
	reclaimEvery = time.Second
	// spaceRetry is the RetryAfter of a refusal.
	spaceRetry = time.Second
	// fullFor is how long a disk counts as full after a failed write, if the file system does
	// not report the free space.
	fullFor = 5 * time.Second
)

// space decides whether new data is accepted. It refuses new data while there is still room for
// operations that free space: settling messages, and compaction. If the disk is full
// nevertheless, because of other writers, it removes the ballast, a file kept for that moment,
// and the engine retries.
type space struct {
	fs      vfs.FS // without vfs.OnDiskFull: removing the ballast must not wait for it
	dir     string
	log     *slog.Logger
	reserve func(total uint64) uint64
	ballast int64

	written   atomic.Int64 // since the last check
	lookAfter atomic.Int64 // bytes written; 0 before the first check

	mu      sync.Mutex
	looked  time.Time
	usage   vfs.DiskUsage
	known   bool // usage is valid
	refused bool
	fullAt  time.Time       // when a write found the disk full; zero if it has room again
	spent   bool            // the ballast was removed
	reclaim time.Time       // when deleted data was last reclaimed
	flushed <-chan struct{} // closed when that is written; nil if it never began
}

// note counts written bytes, and checks the free space after enough of them.
func (s *space) note(n int, now time.Time) {
	if s.written.Add(int64(n)) < s.lookAfter.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look(now)
}

// state returns the free space, at most spaceEvery old.
func (s *space) state(now time.Time) (usage vfs.DiskUsage, refused, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looked.IsZero() || now.Sub(s.looked) >= spaceEvery {
		s.look(now)
	}
	return s.usage, s.refused || !s.fullAt.IsZero(), !s.fullAt.IsZero()
}

// look reads the free space from the file system. s.mu must be held.
func (s *space) look(now time.Time) {
	s.looked = now
	s.written.Store(0)
	usage, err := s.fs.GetDiskUsage(s.dir)
	s.known = err == nil
	if !s.known {
		s.lookAfter.Store(spaceBytes)
		s.usage, s.refused = vfs.DiskUsage{}, false
		if now.Sub(s.fullAt) >= fullFor {
			s.fullAt = time.Time{}
		}
		return
	}
	s.usage = usage
	reserve := s.reserve(usage.TotalBytes)
	s.lookAfter.Store(min(max(int64(reserve/4), leastSpaceBytes), spaceBytes))
	// More room is needed to resume than to stop, so that a store at the limit does not switch
	// with every message.
	again := reserve + reserve/16
	before := s.refused
	switch {
	case usage.AvailBytes < reserve:
		s.refused = true
	case usage.AvailBytes >= again:
		s.refused, s.fullAt = false, time.Time{}
	}
	switch {
	case s.refused && !before:
		s.tell(s.log.Error, "disk.reserve_entered")
	case before && !s.refused:
		s.tell(s.log.Info, "disk.reserve_left")
	}
}

// tell logs the free space and the reserve. s.mu must be held.
func (s *space) tell(log func(message string, args ...any), message string) {
	log(message, "dir", s.dir, "free_bytes", s.usage.AvailBytes, "reserve_bytes", s.reserve(s.usage.TotalBytes),
		"volume_bytes", s.usage.TotalBytes, "sends_refused", s.refused)
}

// begin checks the free space for the first time, and logs it.
func (s *space) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look(now)
	if s.known {
		s.tell(s.log.Info, "disk.reserve")
	}
}

// admit returns ErrFull if new data is refused.
func (s *space) admit(now time.Time) error {
	usage, refused, _ := s.state(now)
	if !refused {
		return nil
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "store", Field: s.dir, RetryAfter: spaceRetry,
		Detail: fmt.Sprintf("the disk is full: %s free, and %s are reserved for settling messages; free some space on the volume, or set a smaller reserve",
			sizeText(usage.AvailBytes), sizeText(s.reserve(usage.TotalBytes))),
	}
}

// sizeText formats a number of bytes.
func sizeText(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// reclaimDeleted calls flush if deleted data should be reclaimed now: new data is refused, and
// the last reclaim is finished and at least every ago. Without this, on a disk with no room for
// tables, tables in memory would pile up and stop all writes.
func (s *space) reclaimDeleted(now time.Time, every time.Duration, flush func() (<-chan struct{}, error)) {
	if !s.reclaimDue(now, every) {
		return
	}
	flushed, err := flush() // may find the disk full, and wait for diskFull
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil { // otherwise the fuse reports it
		s.flushed = flushed
	}
}

func (s *space) reclaimDue(now time.Time, every time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.refused && s.fullAt.IsZero() || now.Sub(s.reclaim) < every {
		return false
	}
	if s.flushed != nil {
		select {
		case <-s.flushed:
		default:
			return false
		}
	}
	s.reclaim = now
	return true
}

// diskFull is called by vfs.OnDiskFull when a write finds the disk full. All writes wait until
// it returns, and the failed one is then retried.
func (s *space) diskFull() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fullAt = time.Now()
	s.looked = s.fullAt
	if !s.spent {
		s.spent = s.fs.Remove(s.fs.PathJoin(s.dir, ballastFile)) == nil
	}
}

// ensureBallast writes the ballast if it does not exist and there is room for it. The store is
// opened even if that fails.
func (s *space) ensureBallast() error {
	if s.ballast <= 0 {
		return nil
	}
	path := s.fs.PathJoin(s.dir, ballastFile)
	if info, err := s.fs.Stat(path); err == nil && info.Size() == s.ballast {
		return nil
	}
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err == nil && usage.AvailBytes < s.reserve(usage.TotalBytes)+uint64(s.ballast) {
		return nil
	}
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// Random data, because a file system may store zeros without using space.
	noise := rand.NewChaCha8([32]byte([]byte("the ballast of a Mailbox store..")))
	chunk := make([]byte, min(s.ballast, 1<<20))
	for left := s.ballast; left > 0 && err == nil; left -= int64(len(chunk)) {
		chunk = chunk[:min(left, int64(len(chunk)))]
		_, _ = noise.Read(chunk) // never fails
		_, err = f.Write(chunk)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = s.fs.Remove(path)
	}
	return err
}
