package store

import (
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// Health is the state of a store and its disk.
type Health struct {
	// Failed is nil until a write or a sync fails; from then on every call returns it.
	Failed error
	// WritesRefused: there is too little free space for new data. Settling
	// messages still works, and makes room.
	WritesRefused bool
	// DiskFull: a write met a full disk; the ballast is spent.
	DiskFull bool
	// SlowDisk: an operation on the disk takes longer than Options.SlowDisk,
	// or one did within the last ten seconds.
	SlowDisk bool
	// DiskHangs: an operation on the disk takes longer than Options.SlowDisk and
	// has not returned.
	DiskHangs bool
	// FreeBytes and TotalBytes describe the volume; they are 0 if the file system does not
	// report them. New data is refused while less than ReserveBytes are free.
	FreeBytes    uint64
	TotalBytes   uint64
	ReserveBytes uint64
	// Corruptions are the damaged files that reads have found.
	Corruptions []Corruption
}

// Ready reports whether the store is fully working.
func (h Health) Ready() bool {
	return h.Failed == nil && !h.WritesRefused && !h.DiskFull && !h.SlowDisk && len(h.Corruptions) == 0
}

// A Corruption is damage in a stored file that a read has found. The read itself returns
// ErrIntegrity.
type Corruption struct {
	// File is the path of the damaged file.
	File string
	// First and Last are the first and the last key in the file; with LastOpen, Last is
	// exclusive. They are nil if the range is unknown.
	First, Last []byte
	LastOpen    bool
	Err         error
}

// damage collects corruptions, one per file: every read and every compaction finds the same
// damaged block.
type damage struct {
	onCorruption func(Corruption)

	mu    sync.Mutex
	files []Corruption
}

// maxCorruptions bounds the list of corruptions.
const maxCorruptions = 64

func (d *damage) add(info pebble.DataCorruptionInfo) {
	c := Corruption{
		File:     info.Path,
		First:    slices.Clone(info.Bounds.Start),
		Last:     slices.Clone(info.Bounds.End.Key),
		LastOpen: info.Bounds.End.Kind == 0, // exclusive
		Err:      info.Details,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := slices.ContainsFunc(d.files, func(k Corruption) bool { return k.File == c.File })
	if known || len(d.files) == maxCorruptions {
		return
	}
	d.files = append(d.files, c)
	if d.onCorruption != nil {
		// The caller holds locks of the engine.
		go d.onCorruption(c)
	}
}

func (d *damage) list() []Corruption {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.files)
}

// Health returns the state of the store. It does not block on the disk, except to read the free
// space, at most four times a second. It may be called at any time, after Close too.
func (s *Store) Health() Health {
	usage, refused, full := s.space.state(time.Now())
	hangs, slow := s.watch.state()
	return Health{
		Failed:        s.fuse.blown(),
		WritesRefused: refused,
		DiskFull:      full,
		SlowDisk:      slow,
		DiskHangs:     hangs,
		FreeBytes:     usage.AvailBytes,
		TotalBytes:    usage.TotalBytes,
		ReserveBytes:  s.space.reserve(usage.TotalBytes),
		Corruptions:   s.damage.list(),
	}
}

// Admit returns nil if the store accepts new data, and otherwise ErrFull with a RetryAfter (too
// little free space), ErrUnavailable (the store failed) or ErrClosed. Call it before accepting
// a message, but not before settling one: settling makes room. It does not block on the disk
// beyond what Health does.
func (s *Store) Admit() error {
	if err := s.fuse.blown(); err != nil {
		return err
	}
	if s.gate.isShut() {
		return driver.ErrClosed
	}
	return s.space.admit(time.Now())
}
