package store

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
)

// Options configures a store. Nil and the zero value mean the defaults, which are right for
// production.
type Options struct {
	// FS is the file system to use. Nil means that of the operating system. Tests pass one that
	// crashes or fails.
	FS vfs.FS
	// Sync is what a durable commit waits for. The zero value is SyncEach.
	Sync SyncPolicy
	// ReadOnly opens an existing store without changing it; commits are
	// refused.
	ReadOnly bool

	// MemTableBytes is the size of a memory table, which is written to disk when it is full.
	// Messages that are settled before that are never written to a table. The default is 1/64
	// of the volume, from 1 MiB to 8 MiB. Up to four are held in memory, and about six times
	// as much on disk (see the package documentation). At least 64 KiB.
	MemTableBytes int
	// CacheBytes bounds the cache of table blocks. The default is 16 MiB: a backlog is read
	// once and in order, and the kernel caches files too.
	CacheBytes int64
	// SealAfter is how long a store must be idle before the end of its log is sealed. The
	// default is 50 ms.
	SealAfter time.Duration

	// ReserveBytes is how much of the volume stays free. Below it Admit refuses new
	// data, and commits still go through. The default is 5 % of the volume, from
	// 16 MiB to 1 GiB; negative means no reserve.
	ReserveBytes int64
	// BallastBytes is the size of a file that is removed when the disk is full, to make room
	// for an orderly stop. The default is 1/64 of the volume, from 1 MiB to 16 MiB; negative
	// means none.
	BallastBytes int64
	// SlowDisk is how long an operation on the disk may take before Health and
	// OnSlowDisk report it. The default is 2 s.
	SlowDisk time.Duration

	// Logger gets the log of the engine. Nil means no log.
	Logger *slog.Logger
	// OnFail is called once, in a goroutine of its own, when a write or a sync
	// has failed. Every call in flight, and every later one, returns an error
	// that wraps ErrFailed; the callback may close the store. Nil means that
	// the process prints one line to its standard error and exits with
	// ExitCode, at once.
	OnFail func(error)
	// OnCorruption is called once for each damaged file that a read finds, in a goroutine of
	// its own.
	OnCorruption func(Corruption)
	// OnSlowDisk is called once for each operation on the disk that takes too long, during the
	// operation. It must return soon.
	OnSlowDisk func(SlowOperation)

	// For the tests of this package.
	maxManifestBytes int64
	forgetSeals      bool
	forgetWatermarks bool
}

// A SyncPolicy determines what a durable commit waits for.
type SyncPolicy struct {
	mode  syncMode
	every time.Duration
}

type syncMode uint8

const (
	syncEach syncMode = iota
	syncInterval
	syncNone
)

// SyncEach makes every durable commit wait until it is on stable storage.
// Commits that wait at the same time share one sync. It is the default.
func SyncEach() SyncPolicy { return SyncPolicy{} }

// SyncInterval makes durable commits wait only until the operating system has them: they
// survive the end of the process. They are synced within every; a crash of the machine loses
// commits that were not.
func SyncInterval(every time.Duration) SyncPolicy {
	return SyncPolicy{mode: syncInterval, every: every}
}

// SyncNone is SyncInterval without the interval: the operating system decides when to write.
// Close syncs.
func SyncNone() SyncPolicy { return SyncPolicy{mode: syncNone} }

func (p SyncPolicy) String() string {
	switch p.mode {
	case syncInterval:
		return fmt.Sprintf("every %v", p.every)
	case syncNone:
		return "none"
	}
	return "each commit"
}

const (
	minMemTableBytes = 64 << 10
	maxMemTableBytes = 1 << 30
)

// withDefaults returns a copy with all defaults set, or ErrInvalid.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.FS == nil || c.FS == vfs.Default {
		c.FS = localFS
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&c.CacheBytes, 16<<20)
	setDefault(&c.SealAfter, 50*time.Millisecond)
	setDefault(&c.SlowDisk, 2*time.Second)
	setDefault(&c.maxManifestBytes, 16<<20)
	switch {
	case c.MemTableBytes != 0 && (c.MemTableBytes < minMemTableBytes || c.MemTableBytes > maxMemTableBytes):
		return c, optionError("MemTableBytes", fmt.Sprintf("%d is outside %d…%d", c.MemTableBytes, minMemTableBytes, maxMemTableBytes))
	case c.CacheBytes < 0:
		return c, optionError("CacheBytes", "is negative")
	case c.SealAfter < 0:
		return c, optionError("SealAfter", "is negative")
	case c.SlowDisk < 0:
		return c, optionError("SlowDisk", "is negative")
	case c.Sync.mode == syncInterval && c.Sync.every <= 0:
		return c, optionError("Sync", "the interval must be positive")
	}
	return c, nil
}

// The defaults that depend on the size of the volume.
const (
	volumeShare                 = 64 // of the volume, for a memory table and for the ballast
	leastMemTable, mostMemTable = 1 << 20, 8 << 20
	leastBallast, mostBallast   = 1 << 20, 16 << 20
	reservePercent              = 5
	leastReserve, mostReserve   = 16 << 20, 1 << 30
)

// fitVolume sets the defaults that depend on the volume of dir. If the file system does not
// report its size, they are those of a large volume.
func (o *Options) fitVolume(dir string) {
	share := uint64(mostBallast)
	if usage, err := o.FS.GetDiskUsage(dir); err == nil {
		share = min(usage.TotalBytes/volumeShare, mostBallast)
	}
	setDefault(&o.MemTableBytes, min(max(int(share), leastMemTable), mostMemTable))
	setDefault(&o.BallastBytes, max(int64(share), leastBallast))
}

// reserve returns how much of a volume stays free.
func (o *Options) reserve(total uint64) uint64 {
	if o.ReserveBytes != 0 {
		return uint64(max(o.ReserveBytes, 0))
	}
	return min(max(total/100*reservePercent, leastReserve), mostReserve)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func optionError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}

// engineOptions returns the options of the engine that differ from its defaults.
func (o *Options) engineOptions(fs vfs.FS, f *fuse, events *pebble.EventListener) *pebble.Options {
	options := &pebble.Options{
		FS:     fs,
		Logger: f,
		// The default is the oldest format, without checksummed sync offsets in the log and
		// without DeleteSized.
		FormatMajorVersion:          pebble.FormatNewest,
		EventListener:               events,
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		CacheSize:                   o.CacheBytes,
		MaxOpenFiles:                1000,
		MaxManifestFileSize:         o.maxManifestBytes,
		ReadOnly:                    o.ReadOnly,
	}
	// Tables of the first level are soon merged, and those of a busy queue hold little but
	// deletions: compressing them costs more than it saves.
	options.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	options.Levels[1].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	options.Experimental.CompactionScheduler = newQuietScheduler()
	return options
}
