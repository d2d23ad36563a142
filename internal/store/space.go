package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// spaceEvery and spaceBytes are how much time, or how many bytes written,
	// pass at least between two looks at the free space. Nothing looks while
	// nothing is written or asked.
	spaceEvery = 250 * time.Millisecond
	spaceBytes = 16 << 20
	// spaceRetry is the hint that goes with a refusal.
	spaceRetry = time.Second
	// fullFor is how long a disk counts as full after it said so, where the
	// free space cannot be asked for.
	fullFor = 5 * time.Second
)

// space decides whether new data is still welcome. It turns it away while there
// is still room for what makes room: settling messages, and compaction. When
// the disk is full all the same, because of other writers, it removes the
// ballast, a file kept for that moment, and the engine tries once more.
type space struct {
	fs         vfs.FS // below vfs.OnDiskFull: removing the ballast must not wait for it
	dir        string
	minBytes   uint64
	minPercent uint64
	ballast    int64

	written atomic.Int64 // since the last look

	mu      sync.Mutex
	looked  time.Time
	usage   vfs.DiskUsage
	known   bool // usage is valid
	refused bool
	fullAt  time.Time // when the disk said it was full; zero if it has room again
	spent   bool      // the ballast was removed
}

// note counts bytes written, and looks at the free space when enough were.
func (s *space) note(n int, now time.Time) {
	if s.written.Add(int64(n)) < spaceBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look(now)
}

// state returns what is known about the free space, at most spaceEvery old.
func (s *space) state(now time.Time) (usage vfs.DiskUsage, refused, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looked.IsZero() || now.Sub(s.looked) >= spaceEvery {
		s.look(now)
	}
	return s.usage, s.refused || !s.fullAt.IsZero(), !s.fullAt.IsZero()
}

// look asks the file system. s.mu must be held.
func (s *space) look(now time.Time) {
	s.looked = now
	s.written.Store(0)
	usage, err := s.fs.GetDiskUsage(s.dir)
	s.known = err == nil
	if !s.known {
		s.usage, s.refused = vfs.DiskUsage{}, false
		if now.Sub(s.fullAt) >= fullFor {
			s.fullAt = time.Time{}
		}
		return
	}
	s.usage = usage
	reserve := s.reserve(usage.TotalBytes)
	// A little more room is needed to begin again than to stop, or a store at
	// the edge would change its mind with every message.
	again := reserve + reserve/16
	switch {
	case usage.AvailBytes < reserve:
		s.refused = true
	case usage.AvailBytes >= again:
		s.refused, s.fullAt = false, time.Time{}
	}
}

func (s *space) reserve(total uint64) uint64 {
	return max(s.minBytes, total/100*s.minPercent)
}

// admit returns ErrFull if new data is not welcome.
func (s *space) admit(now time.Time) error {
	usage, refused, _ := s.state(now)
	if !refused {
		return nil
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "store", Field: s.dir, RetryAfter: spaceRetry,
		Detail: fmt.Sprintf("the disk has %d bytes free, %d are kept for settling messages; free some space", usage.AvailBytes, s.reserve(usage.TotalBytes)),
	}
}

// diskFull is called by vfs.OnDiskFull when the disk says it is full. All
// writes wait until it returns, and the one that failed is then tried again.
func (s *space) diskFull() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fullAt = time.Now()
	s.looked = s.fullAt
	if !s.spent {
		s.spent = s.fs.Remove(s.fs.PathJoin(s.dir, ballastFile)) == nil
	}
}

// ensureBallast writes the ballast if it is not there and there is room for it.
// Failing to is no reason not to open the store.
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
	// Noise, because a file system may keep zeros without using any space.
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
