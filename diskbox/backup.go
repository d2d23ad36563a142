package diskbox

import (
	"context"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Backup writes a complete copy of all queues to dir, which must not exist or
// be empty, while they go on being used. The copy holds everything that was
// answered when Backup was called, and each operation answered meanwhile
// entirely or not at all. It is a directory like any other: Check checks it,
// Open opens it, and Restore makes another of it.
//
// On the same file system most of it is linked, not copied. Cancelling ctx, like
// every error, leaves nothing behind. Codes: ErrConflict, ErrInvalid, ErrFull,
// ErrUnavailable, ErrClosed.
func (b *Backend) Backup(ctx context.Context, dir string) error {
	return b.store.Backup(ctx, dir)
}

// Restore makes a working directory out of a backup, which stays as good as it
// was: it checks all of it first, and copies it to dir, which must not exist or
// be empty. Nobody may have the backup open. Messages that were in flight when
// the backup was made come back when their leases end. Codes: ErrIntegrity (the
// backup is damaged; nothing was written), ErrNotFound, ErrConflict, ErrInvalid,
// ErrFull, ErrUnavailable.
func Restore(ctx context.Context, backup, dir string, options *Options) error {
	report, err := Check(ctx, backup, options)
	if err != nil {
		return err
	}
	if n := len(report.Problems); n > 0 {
		return &driver.Error{
			Code: driver.ErrIntegrity, Op: "restore",
			Detail: fmt.Sprintf("the backup %s has %d problems, the first: %s", backup, n, report.Problems[0]),
		}
	}
	var o Options
	if options != nil {
		o = *options
	}
	s, err := store.Open(ctx, backup, o.storeOptions(store.SyncEach()))
	if err != nil {
		return err
	}
	err = s.Backup(ctx, dir)
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}
