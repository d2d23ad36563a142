package diskbox

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store"
)

// Backup writes a complete copy of all queues to dir, which must not exist or
// be empty, while they stay in use. The copy has every operation that was answered before
// Backup was called, and each operation answered meanwhile entirely or not at all. It is
// an ordinary directory: Check checks it, Open opens it, and Restore copies it.
//
// On the same file system most of it is linked, not copied. Cancelling ctx, like
// every error, leaves nothing behind. Codes: ErrConflict, ErrInvalid, ErrFull,
// ErrUnavailable, ErrClosed.
func (b *Backend) Backup(ctx context.Context, dir string) error {
	return b.store.Backup(ctx, dir)
}

// A BackupFile is a file that a backup holds beside the queues.
type BackupFile = store.ArchivedFile

// BackupInfo describes a backup in one file.
type BackupInfo = store.ArchiveInfo

// WriteBackup writes the copy that Backup makes to w, as one file whose end proves that
// it is complete: Check checks it, List lists it, and Restore makes a directory
// of it. beside is called after the copy is made, and returns further files for the
// backup; it may be nil. One backup is written at a time.
//
// On the disk of the queues it needs room for the logs, and tables that are deleted
// meanwhile stay until it ends. Cancelling ctx, like every error, ends it; what w has
// then is refused by everything that reads backups. Codes: ErrConflict (another is under
// way), ErrFull, ErrUnavailable, ErrClosed, and whatever w returns.
func (b *Backend) WriteBackup(ctx context.Context, w io.Writer, beside func() ([]BackupFile, error)) (BackupInfo, error) {
	return b.store.WriteArchive(ctx, w, beside)
}

// Restore makes a working directory out of a backup, which is a directory or a file and is
// not changed. It checks the whole backup first, and copies it to dir, which must not exist
// or be empty. No process may have the backup open. Messages that were in flight
// when the backup was made are ready again when their leases end. Codes: ErrIntegrity (the
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
	if isFile(&o, backup) {
		return restoreFile(ctx, backup, dir)
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

// isFile reports whether a backup is one file, and not a directory.
func isFile(o *Options, path string) bool {
	info, err := os.Stat(path)
	return o.fs == nil && err == nil && info.Mode().IsRegular()
}

// restoreFile extracts the queues of a backup in one file that was checked.
func restoreFile(ctx context.Context, backup, dir string) error {
	a, err := store.OpenArchive(backup)
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	return a.ExtractStore(ctx, dir)
}
