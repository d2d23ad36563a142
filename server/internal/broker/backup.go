package broker

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// Backups backs a daemon up.
type Backups interface {
	// Supported returns nil, or ErrUnsupported with the tool that backs up the backend.
	Supported() error
	// WriteBackup writes a backup of everything, with keys the keys too. It blocks for
	// as long as that takes.
	WriteBackup(ctx context.Context, w io.Writer, keys bool) (BackupFigures, error)
}

// BackupFigures say how large a backup is.
type BackupFigures struct {
	Files int
	Bytes int64
}

// Backup writes a backup of all tenants' queues to w. It needs a token of no tenant that
// names the operation, and with keys one for admin too: the keys can mint any token.
// It blocks for as long as writing takes. Codes: ErrUnsupported (the
// backend has its own tool), ErrConflict (another backup is under way), ErrFull,
// ErrUnavailable.
func (c Caller) Backup(ctx context.Context, w io.Writer, keys bool) error {
	if err := c.mayBackUp(ctx, keys); err != nil {
		return err
	}
	began := time.Now()
	figures, err := c.broker.backups.WriteBackup(ctx, w, keys)
	c.record("backup", "", "", 0, err)
	attrs := []slog.Attr{
		slog.Bool("keys", keys), slog.Int("files", figures.Files), slog.Int64("bytes", figures.Bytes), slog.Duration("took", time.Since(began)),
	}
	if err != nil {
		c.broker.log.LogAttrs(ctx, slog.LevelWarn, "backup.failed", c.attrs("", append(attrs, slog.String("error", err.Error()))...)...)
		return err
	}
	c.broker.log.LogAttrs(ctx, slog.LevelInfo, "backup.written", c.attrs("", attrs...)...)
	return nil
}

func (c *Caller) mayBackUp(ctx context.Context, keys bool) error {
	if err := c.broker.verifier.Valid(ctx, c.token); err != nil {
		c.refused(ctx, c.request(capability.OpBackup, ""), err)
		return err
	}
	if c.broker.backups == nil {
		return &driver.Error{Code: driver.ErrUnsupported, Op: "backup", Detail: "this daemon takes no backups"}
	}
	if err := c.broker.backups.Supported(); err != nil {
		return err
	}
	if _, err := c.authorize(ctx, capability.OpBackup, ""); err != nil {
		return err
	}
	if c.tenant != "" {
		return &driver.Error{Code: driver.ErrForbidden, Op: "backup", Field: "tenant", Detail: "a backup holds the messages of all tenants", Err: capability.ReasonTenant}
	}
	if keys {
		if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
			return err
		}
	}
	return c.broker.admit("backup", "", lastForReads)
}
