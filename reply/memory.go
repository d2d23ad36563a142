package reply

import (
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/slotstore"
)

// MemoryOptions configure a store of NewMemory. The zero value, and nil, mean the defaults.
type MemoryOptions struct {
	// MaxSlots bounds the slots. 0 means 100,000.
	MaxSlots int
	// MaxBodyBytes bounds the body of an answer. 0 means
	// driver.DefaultMaxBodyBytes.
	MaxBodyBytes int
	// MaxBytes bounds the answers of all slots: beyond it Resolve is ErrFull, and a
	// worker repeats the request. 0 means 256 MiB.
	MaxBytes int64
}

// NewMemory returns an empty reply store in memory, for clients and workers of one
// process. It uses the monotonic clock, wakes waiting callers, and runs no goroutine;
// Create sweeps expired slots. It does no I/O, and only Wait blocks.
func NewMemory(options *MemoryOptions) driver.ReplyStore {
	var o slotstore.Options
	if options != nil {
		o.MaxSlots, o.MaxBodyBytes, o.MaxBytes = options.MaxSlots, options.MaxBodyBytes, options.MaxBytes
	}
	return slotstore.New(o)
}
