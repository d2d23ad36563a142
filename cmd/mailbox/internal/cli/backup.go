package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/checkup"
)

func (s *shell) backupCommand() *cobra.Command {
	var keys bool
	c := &cobra.Command{
		Use: "backup FILE|DIRECTORY", Short: "Back up a daemon on disk while it runs",
		Long: "Write everything that a running daemon keeps on disk, as it was at one moment, to one file, and check that file:\n" +
			"open it, verify it and count what is in it. In a directory the file is named after the time. A file that is not\n" +
			"complete ends in .partial, and is never accepted as a backup. Keys are left out unless --keys is given.",
		Example: "mailbox backup /var/backups/mailbox\nmailbox backup before-upgrade.tar --keys",
		Args:    wants(1, 1),
		RunE:    s.run(func(ctx context.Context, args []string) error { return s.backup(ctx, args[0], keys) }),
	}
	c.Flags().BoolVar(&keys, "keys", false, "include the keys that sign tokens, and the operator's token: protect such a file like the keys")
	return c
}

// backupView is a backup in JSON.
type backupView struct {
	File     string     `json:"file"`
	Bytes    int64      `json:"bytes"`
	MadeAt   *time.Time `json:"made_at,omitempty"`
	Keys     bool       `json:"keys"`
	Queues   int        `json:"queues"`
	Messages int        `json:"messages"`
	Dead     int        `json:"dead"`
}

func (s *shell) backup(ctx context.Context, target string, keys bool) error {
	target, err := backupFile(target, time.Now())
	if err != nil {
		return err
	}
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.api.close()
	partial, info, err := s.fetchBackup(ctx, c.api, target, keys)
	var report *diskbox.Report
	if err == nil {
		report, err = s.proveBackup(ctx, partial)
	}
	if err == nil {
		err = publishFile(partial, target)
	}
	if err != nil {
		_ = os.Remove(partial)
		return backupFailure(err, target, keys)
	}
	return s.sayBackup(target, info, keys, report)
}

// backupFile returns the file to write a backup to.
func backupFile(target string, now time.Time) (string, error) {
	switch target {
	case "":
		return "", usageError("FILE: invalid value \"\"; want a file or a directory")
	case "-":
		return "", usageError("FILE: invalid value \"-\"; want a file or a directory, because a backup is read again and checked before it gets its name")
	}
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		target = filepath.Join(target, now.UTC().Format("mailbox-20060102T150405Z.tar"))
	}
	if dir := filepath.Dir(target + "x"); !isDirectory(dir) { // that of DIR/ is DIR itself
		return "", usageError("the directory %s does not exist; create it first", dir)
	}
	return target, vacantFile(target)
}

// vacantFile returns nil if no file exists at path.
func vacantFile(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return &failure{exit: exitConflict, code: "conflict", sentence: fmt.Sprintf("%s exists already", path), advice: "name another file, or wait a second if the name is the time"}
	}
	return nil
}

// fetchBackup writes the backup that the daemon sends, durably, to a file beside target that no other
// run uses, and returns its name. It parses only the first entry, for the progress
// bar.
func (s *shell) fetchBackup(ctx context.Context, a *api, target string, keys bool) (partial string, info diskbox.BackupInfo, err error) {
	response, err := a.post(ctx, &apiRequest{path: "/v1/backup", body: map[string]bool{"keys": keys}})
	if err != nil {
		return "", info, err
	}
	defer func() { _ = response.Body.Close() }()
	file, err := os.CreateTemp(filepath.Dir(target), filepath.Base(target)+".*.partial") // 0600
	if err != nil {
		return "", info, notWritten(target, err)
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = notWritten(target, closed)
		}
	}()
	info, err = s.copyBackup(ctx, a, file, response.Body)
	return file.Name(), info, err
}

// copyBackup writes a backup to a file, durably.
func (s *shell) copyBackup(ctx context.Context, a *api, file *os.File, from io.Reader) (info diskbox.BackupInfo, err error) {
	head := make([]byte, 1<<10) // the first entry
	n, err := io.ReadFull(from, head)
	if err == nil {
		r := tar.NewReader(bytes.NewReader(head))
		if _, err := r.Next(); err == nil {
			_ = json.NewDecoder(r).Decode(&info) // the later check detects damage
		}
	}
	bar := s.progress("backup", info.Bytes)
	defer bar.end()
	body := io.MultiReader(bytes.NewReader(head[:n]), from)
	for buf := make([]byte, 256<<10); ; {
		n, err := body.Read(buf)
		if _, failed := file.Write(buf[:n]); failed != nil {
			return info, notWritten(file.Name(), failed)
		}
		bar.add(int64(n))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return info, a.broken(ctx, err)
		}
	}
	return info, notWritten(file.Name(), file.Sync())
}

// proveBackup opens a backup, verifies it and counts its messages.
func (s *shell) proveBackup(ctx context.Context, path string) (*diskbox.Report, error) {
	report, err := diskbox.Check(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	if n := len(report.Problems); n > 0 {
		return nil, &driver.Error{
			Code: driver.ErrIntegrity, Op: "backup",
			Detail: fmt.Sprintf("the backup has %s, the first: %s", plural(n, "problem"), report.Problems[0]),
		}
	}
	return report, nil
}

// publishFile renames a complete file to its final name, durably. An existing file of that name is
// not replaced.
func publishFile(partial, target string) error {
	if err := vacantFile(target); err != nil {
		return err
	}
	if err := os.Rename(partial, target); err != nil {
		return notWritten(target, err)
	}
	return notWritten(target, syncDirectory(filepath.Dir(target)))
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot sync a directory, and does not need it
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func notWritten(path string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{exit: exitFailed, code: "output", cause: err, sentence: fmt.Sprintf("%s cannot be written (%s)", path, rootCause(err))}
}

func (s *shell) sayBackup(target string, info diskbox.BackupInfo, keys bool, r *diskbox.Report) error {
	size := info.Bytes
	if stat, err := os.Stat(target); err == nil {
		size = stat.Size()
	}
	return s.say(backupView{target, size, timeOf(info.MadeAt), keys, r.Queues, r.Messages, r.Dead},
		"%s: %s as of %s, checked: %s.", target, checkup.Bytes(uint64(size)), stamp(timeOf(info.MadeAt)), counts(r))
}

// counts returns the numbers of queues, messages and dead letters as text.
func counts(r *diskbox.Report) string {
	return fmt.Sprintf("%s, %s, %s", plural(r.Queues, "queue"), plural(r.Messages, "message"), plural(r.Dead, "dead letter"))
}

// backupFailure explains why there is no backup.
func backupFailure(err error, target string, keys bool) error {
	needs := `"backup"`
	if keys {
		needs = `"backup" and "admin", which --keys needs`
	}
	e, _ := errors.AsType[*driver.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case e == nil:
		return err
	case e.Code == driver.ErrIntegrity:
		return &failure{exit: exitFailed, code: "integrity", cause: err, sentence: fmt.Sprintf("there is no backup: %s", because(e)), advice: "check the log of the daemon, and try again"}
	case e.Code == driver.ErrForbidden && capability.ReasonOf(err) == capability.ReasonTenant:
		return &failure{
			exit: exitToken, code: "forbidden", cause: err, sentence: "a backup contains the messages of all tenants, and the token is for one tenant",
			advice: "use the operator's token, or one without a tenant that names the operation backup",
		}
	case e.Code == driver.ErrForbidden:
		return &failure{
			exit: exitToken, code: "forbidden", cause: err, sentence: "the token does not allow " + needs,
			advice: "use the operator's token, which a daemon on disk renews with it when it starts, or one that names the operation: mailbox cap mint --op backup",
		}
	case e.Code == driver.ErrNotFound:
		return &failure{exit: exitFailed, code: "unsupported", cause: err, sentence: "the daemon's version does not support backups", advice: "upgrade it"}
	case e.Code == driver.ErrConflict:
		return &failure{exit: exitConflict, code: "conflict", cause: err, sentence: because(e)}
	case e.Code == driver.ErrUnavailable:
		return &failure{exit: exitUnreachable, code: "unavailable", cause: err, sentence: fmt.Sprintf("the backup was interrupted, and %s was not written (%s)", target, because(e)), advice: "see what is wrong with mailbox doctor, and try again"}
	}
	return err
}
