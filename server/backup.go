package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// onDisk reports whether the backend is disk:.
func (c *Config) onDisk() bool { return strings.HasPrefix(c.Backend, "disk:") }

// backups returns the implementation of backups for the backend. For backends that
// the daemon cannot back up, it refuses and names the tool to use.
func (s *Server) backups(c *Config) broker.Backups {
	if disk, ok := s.opener.(*diskbox.Backend); ok {
		return &diskBackups{disk: disk, keys: s.keys, keyFile: c.KeyFile, tokenFile: c.TokenFile}
	}
	scheme, _, _ := strings.Cut(c.Backend, ":")
	switch scheme {
	case "memory":
		return noBackups("the backend memory: stores nothing that could be restored; use disk: for durable messages")
	case "postgres", "postgresql":
		return noBackups("the messages are in PostgreSQL; back it up with its own tools, pg_dump --schema=mailbox or pg_basebackup")
	case "redis", "rediss":
		return noBackups("the messages are in Redis; back it up with its own tools, redis-cli --rdb FILE or BGSAVE")
	}
	return noBackups("the daemon cannot back up this backend; use the backend's own tools")
}

// noBackups refuses backups with a reason.
type noBackups string

func (n noBackups) WriteBackup(context.Context, io.Writer, bool) (broker.BackupFigures, error) {
	return broker.BackupFigures{}, n.Supported()
}

func (n noBackups) Supported() error {
	return &driver.Error{Code: driver.ErrUnsupported, Op: "backup", Detail: string(n)}
}

// diskBackups backs up a daemon on disk.
type diskBackups struct {
	disk               *diskbox.Backend
	keys               *keyStore
	keyFile, tokenFile string
}

func (d *diskBackups) Supported() error { return nil }

// WriteBackup writes the queues, the revocations and the audit log, and with keys also the
// key file and the operator's token. Revocations and audit log are read after the copy of
// the queues is complete, so that they are never older than it.
func (d *diskBackups) WriteBackup(ctx context.Context, w io.Writer, keys bool) (broker.BackupFigures, error) {
	info, err := d.disk.WriteBackup(ctx, w, func() ([]diskbox.BackupFile, error) {
		changes, err := d.keys.audit.Content()
		if err != nil {
			return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "backup", Detail: "the audit log cannot be read", Err: err}
		}
		files := []diskbox.BackupFile{
			{Name: "revocations", Content: revocation.Encode(d.keys.revocations.All())},
			{Name: audit.FileName, Content: changes},
		}
		if !keys {
			return files, nil
		}
		for name, path := range map[string]string{"keys": d.keyFile, "operator.token": d.tokenFile} {
			content, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "backup", Field: name, Err: err}
			}
			files = append(files, diskbox.BackupFile{Name: name, Content: content})
		}
		return files, nil
	})
	return broker.BackupFigures{Files: info.Files, Bytes: info.Bytes}, err
}
