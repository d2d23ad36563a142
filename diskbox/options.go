package diskbox

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/opening"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Options configure a Backend. The zero value, and nil, mean the defaults.
type Options struct {
	// Defaults is the configuration of queues that are opened without having been
	// configured, and provides the unset fields of a new queue's configuration.
	Defaults driver.Config
	// MaxBodyBytes bounds bodies; 0 means driver.DefaultMaxBodyBytes. It is at
	// most 64 MiB.
	MaxBodyBytes int
	// MaxReplySlots bounds the slots of the reply store; 0 means 100,000.
	MaxReplySlots int
	// Sync says how durable an answer is; the default is SyncEach.
	Sync Sync
	// SyncEvery is the longest time between syncs with SyncInterval; 0 means
	// one second.
	SyncEvery time.Duration
	// ReserveBytes is how much of the volume stays free. Below it sends are refused
	// with ErrFull; settling, which makes room, is still allowed. 0 means 5 % of the
	// volume, at least 16 MiB and at most 1 GiB; driver.Off means no reserve.
	ReserveBytes int64
	// Logger gets events of the store. Nil means that nothing is logged.
	Logger *slog.Logger
	// OnFail is called once when a write or a sync has failed. No operation succeeds
	// from then on. Nil means that the process prints one line and exits with code 74,
	// because its state in memory is no longer valid.
	OnFail func(error)

	// For tests.
	fs    vfs.FS
	boot  bootClock
	wall  func() time.Time
	small bool // open stores that need little memory, and hold few messages
	room  *host.Room
	// secret is the secret of a new directory, for tests in which two directories must
	// spread groups over shards alike.
	secret [32]byte
}

// maxBodyLimit is the maximum of Options.MaxBodyBytes: 64 MiB. Records that are written
// together have to fit into one batch of the store.
const maxBodyLimit = 64 << 20

// A batch ends when it is large, and the last operation in it has at most one message that
// dies and is forwarded: twice its body, and its other fields. If this does not compile,
// that may not fit.
const (
	mostBesideBody = 1 << 20
	_              = uint(store.MaxBatchBytes - largeBatch - 2*(maxBodyLimit+mostBesideBody))
)

// check refuses invalid options.
func (o *Options) check() error {
	for field, value := range map[string]int64{"MaxBodyBytes": int64(o.MaxBodyBytes), "SyncEvery": int64(o.SyncEvery), "MaxReplySlots": int64(o.MaxReplySlots)} {
		if err := opening.CheckOption(field, value); err != nil {
			return err
		}
	}
	if o.Sync < SyncEach || o.Sync > SyncNone {
		return &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "Sync",
			Detail: fmt.Sprintf("%d is none of SyncEach (%d), SyncInterval (%d) and SyncNone (%d)", o.Sync, SyncEach, SyncInterval, SyncNone),
		}
	}
	if o.ReserveBytes < driver.Off {
		return &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "ReserveBytes",
			Detail: fmt.Sprintf("%d is negative; want at least 1, 0 for the default, or driver.Off", o.ReserveBytes),
		}
	}
	if err := o.Defaults.Validate(); err != nil {
		return err
	}
	if o.MaxBodyBytes > maxBodyLimit {
		return &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "MaxBodyBytes",
			Detail: fmt.Sprintf("%d is more than the limit of %d", o.MaxBodyBytes, maxBodyLimit),
		}
	}
	return nil
}

const (
	// heldMessages and heldBytes bound the messages of each state that a shard holds in any
	// case. They are small because queues are many: with 512 messages each, a tenant made the
	// daemon 100 MB larger with 500 queues.
	heldMessages = 32
	heldBytes    = 32 << 10
	// roomBytes is memory that all shards share for further ready messages. A message that is
	// received before it leaves the memory is not read from the store.
	roomBytes = 16 << 20
)

// hold returns the limits of the messages in memory for each shard.
func (o *Options) hold() engine.Limits {
	if o.small {
		return engine.Limits{Messages: 3, Bytes: 64, Look: 64, Pass: 8, Groups: 1000}
	}
	room := o.room
	if room == nil {
		room = host.NewRoom(roomBytes)
	}
	return engine.Limits{Messages: heldMessages, Bytes: heldBytes, Room: room, Look: 1024, Pass: 256, Groups: 10_000}
}

// storeOptions returns the options of the store.
func (o *Options) storeOptions(policy store.SyncPolicy) *store.Options {
	options := &store.Options{FS: o.fs, Sync: policy, ReserveBytes: o.ReserveBytes, Logger: o.Logger, OnFail: o.OnFail}
	if o.small {
		options.MemTableBytes, options.CacheBytes, options.BallastBytes = 64<<10, 1<<20, -1
	}
	return options
}

// Sync says what an answer waits for.
type Sync int

// The levels.
const (
	// SyncEach: an answer means that the operation is on stable storage.
	// Operations that wait at the same time share one sync.
	SyncEach Sync = iota
	// SyncInterval: an answer means that the operating system has it. It
	// survives the process, and the machine after at most SyncEvery.
	SyncInterval
	// SyncNone: as SyncInterval, and the operating system decides when to
	// write.
	SyncNone
)

func (o *Options) policy() (store.SyncPolicy, driver.Durability) {
	switch o.Sync {
	case SyncInterval:
		every := o.SyncEvery
		if every <= 0 {
			every = time.Second
		}
		return store.SyncInterval(every), driver.DurabilityProcess
	case SyncNone:
		return store.SyncNone(), driver.DurabilityProcess
	default:
		return store.SyncEach(), driver.DurabilityDisk
	}
}
