package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/store"
)

// revocationsFile is the name of the revocation file in a data directory.
const revocationsFile = "revocations"

// restoration is one run of mailbox restore.
type restoration struct {
	shell      *shell
	dir        string
	from       []string // files of later revocations, with the audit logs beside them
	retireKeys bool

	archive *store.Archive
	report  *diskbox.Report
	revoked int
	audited int
}

// restoredView is a restoration in JSON.
type restoredView struct {
	Directory       string     `json:"directory"`
	MadeAt          *time.Time `json:"made_at"`
	Queues          int        `json:"queues"`
	Messages        int        `json:"messages"`
	Dead            int        `json:"dead"`
	Revocations     int        `json:"revocations"`
	RevocationsFrom []string   `json:"revocations_from"`
	AuditRecords    int        `json:"audit_records"`
}

func (s *shell) restoreCommand() *cobra.Command {
	r := restoration{shell: s}
	c := &cobra.Command{
		Use: "restore BACKUP DIRECTORY", Short: "Restore a backup into a data directory",
		Long: "Check a backup, and make a data directory from it for a daemon to start with. The directory must not exist, or be\n" +
			"empty; it appears when all of it is on disk. Revocations and audit records that were made after the backup are taken\n" +
			"over from the data directory that the daemon used until now: that of --revocations-from, or else the one on this\n" +
			"machine.",
		Example: "mailbox restore backup.tar /var/lib/mailboxd\nmailbox restore backup.tar /var/lib/mailboxd --revocations-from /var/lib/mailboxd.old",
		Args:    wants(2, 2),
		RunE: s.run(func(ctx context.Context, args []string) error {
			if args[1] == "" {
				return usageError("DIRECTORY: invalid value \"\"; want a directory that does not exist, or is empty")
			}
			if isDirectory(args[0]) {
				return usageError("BACKUP: %s is a directory; want a file that mailbox backup has written", args[0])
			}
			dir, err := filepath.Abs(args[1]) // because the parent of "." is needed too
			if err != nil {
				return unfit(args[1], "cannot be found (%s)", rootCause(err))
			}
			r.dir = followed(dir)
			return offline(r.run(ctx, args[0]))
		}),
	}
	c.Flags().StringArrayVar(&r.from, "revocations-from", nil, "data directory, or revocation file, that the daemon used after the backup; the audit log beside it is merged too")
	c.Flags().BoolVar(&r.retireKeys, "retire-keys", false, "refuse all tokens of the keys in the backup, because revocations made since are lost")
	return c
}

func (r *restoration) run(ctx context.Context, backup string) (err error) {
	if err := vacant(r.dir); err != nil {
		return err
	}
	if r.archive, err = store.OpenArchive(backup); err != nil {
		return err
	}
	defer func() { _ = r.archive.Close() }()
	if r.report, err = r.shell.proveBackup(ctx, backup); err != nil {
		return err
	}
	if err := r.findRevocations(); err != nil {
		return err
	}
	parent := filepath.Dir(r.dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return notWritten(parent, err)
	}
	temporary, err := os.MkdirTemp(parent, filepath.Base(r.dir)+".restoring-")
	if err != nil {
		return notWritten(parent, err)
	}
	if err = r.fill(ctx, temporary); err == nil {
		err = r.publish(temporary)
	}
	if err != nil {
		_ = os.RemoveAll(temporary)
		return err
	}
	return r.say()
}

// followed returns the target of dir if it is a symbolic link, even if the target does not
// exist: the link stays, and the data is on the volume of the target.
func followed(dir string) string {
	const maxLinks = 40
	for range maxLinks {
		target, err := os.Readlink(dir)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(dir), target)
		}
		dir = filepath.Clean(target)
	}
	return dir
}

// vacant returns nil if dir does not exist or is empty.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return unfit(dir, "is not a directory that can be read (%s)", rootCause(err))
	case isMountPoint(dir):
		return mounted(dir)
	case len(entries) > 0:
		return unfit(dir, "is not empty (it contains %q): stop the daemon if it runs there, move the directory away, and name an empty one", entries[0].Name())
	}
	return nil
}

// mounted returns the error about a mount point, which a rename cannot replace.
func mounted(dir string) error {
	return unfit(dir, "is a mount point, which cannot be replaced: name a new directory in it, and start the daemon with --data-dir")
}

// findRevocations finds the current data directory of the daemon, if none
// was named.
func (r *restoration) findRevocations() error {
	if len(r.from) == 0 {
		for _, dir := range r.shell.dataDirs() {
			if _, err := os.Stat(filepath.Join(dir, revocationsFile)); err == nil && filepath.Clean(dir) != r.dir {
				r.from = append(r.from, dir)
				break
			}
		}
	}
	for i, path := range r.from {
		if isDirectory(path) {
			r.from[i] = filepath.Join(path, revocationsFile)
		}
		if _, err := os.Stat(r.from[i]); err != nil {
			return &failure{exit: exitNotFound, code: "not_found", cause: err, sentence: fmt.Sprintf("--revocations-from: %s cannot be read (%s)", r.from[i], rootCause(err)), advice: "name the daemon's last data directory"}
		}
	}
	return nil
}

// fill writes the files of a data directory.
func (r *restoration) fill(ctx context.Context, dir string) error {
	bar := r.shell.progress("restore", r.archive.Bytes)
	defer bar.end()
	if err := r.archive.Extract(ctx, dir, func(string) bool { return true }, bar.add); err != nil {
		return err
	}
	if err := r.mergeRevocations(ctx, dir); err != nil {
		return err
	}
	if err := r.mergeAudit(dir); err != nil {
		return notWritten(filepath.Join(dir, audit.FileName), err)
	}
	return r.settleKeys(ctx, dir)
}

// mergeAudit adds the records made after the backup. It keeps all of those; if the log
// would exceed its limit, it leaves out older records of the backup.
func (r *restoration) mergeAudit(dir string) error {
	for _, from := range r.from {
		if err := audit.Merge(dir, filepath.Dir(from), audit.DefaultLimit); err != nil {
			return err
		}
	}
	records, _, err := audit.Read(dir)
	r.audited = len(records)
	return err
}

// mergeRevocations adds the revocations made after the backup.
func (r *restoration) mergeRevocations(ctx context.Context, dir string) error {
	path := filepath.Join(dir, revocationsFile)
	merged, err := revocation.OpenFile(ctx, path)
	if err != nil {
		return err
	}
	for _, from := range r.from {
		later, err := revocation.ReadFile(from)
		if err == nil {
			err = revokeAll(ctx, merged, later)
		}
		if err != nil {
			return errors.Join(err, merged.Close())
		}
	}
	r.revoked = merged.Len()
	return errors.Join(merged.Close(), os.Remove(path+".lock"))
}

func revokeAll(ctx context.Context, to *revocation.File, revocations []revocation.Revocation) error {
	for _, revocation := range revocations {
		if err := to.Revoke(ctx, revocation); err != nil {
			return err
		}
	}
	return nil
}

// settleKeys decides which keys a backup with keys is restored with. Its own are safe
// only together with everything that was revoked since: tokens, and keys that were
// retired. It uses the keys of the current data directory, if that is known.
// --retire-keys retires them in either case.
func (r *restoration) settleKeys(ctx context.Context, dir string) error {
	path := filepath.Join(dir, keysFile)
	own, err := keyring.ReadFile(path)
	if errors.Is(err, driver.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	later := r.laterKeys(own)
	switch {
	case later == nil && !r.retireKeys:
		return &failure{
			exit: exitConflict, code: "conflict",
			sentence: fmt.Sprintf("the backup contains keys, and revocations after %s are not in it", stamp(timeOf(r.archive.MadeAt))),
			advice:   "name the daemon's last data directory with --revocations-from or, if it is lost, end all tokens with --retire-keys",
		}
	case later != nil:
		if err := later.WriteFile(path); err != nil || !r.retireKeys {
			return err
		}
	}
	rotation := rotation{retire: true}
	_, err = keyring.Change(ctx, path, func(ring *keyring.Ring) error { return rotation.change(ring, time.Now()) })
	if err != nil {
		return err
	}
	// The daemon writes a new one when it starts.
	if err := os.Remove(filepath.Join(dir, operatorTokenFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Remove(path + ".lock"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// laterKeys returns the keys of the directory that was used after the backup, if they are
// later versions of own; nil otherwise.
func (r *restoration) laterKeys(own *keyring.Ring) *keyring.Ring {
	for _, from := range r.from {
		ring, err := keyring.ReadFile(filepath.Join(filepath.Dir(from), keysFile))
		if err == nil && succeeds(ring, own) {
			return ring
		}
	}
	return nil
}

// succeeds reports whether a ring can be a later version of another: they have a key in
// common, and no retired key is accepted again.
func succeeds(ring, earlier *keyring.Ring) bool {
	common := false
	for _, was := range earlier.Keys() {
		for _, key := range ring.Keys() {
			if key.ID() != was.ID() {
				continue
			}
			if common = true; !was.RetiredAt().IsZero() && key.RetiredAt().IsZero() {
				return false
			}
		}
	}
	return common
}

// publish renames a complete directory into place.
func (r *restoration) publish(temporary string) error {
	if err := syncDirectory(temporary); err != nil {
		return notWritten(temporary, err)
	}
	if err := os.Remove(r.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		if errors.Is(err, syscall.EBUSY) {
			return mounted(r.dir)
		}
		return unfit(r.dir, "cannot be replaced (%s)", rootCause(err))
	}
	if err := os.Rename(temporary, r.dir); err != nil {
		return notWritten(r.dir, err)
	}
	return notWritten(r.dir, syncDirectory(filepath.Dir(r.dir)))
}

func (r *restoration) say() error {
	v := restoredView{r.dir, timeOf(r.archive.MadeAt), r.report.Queues, r.report.Messages, r.report.Dead, r.revoked, append([]string{}, r.from...), r.audited}
	text := fmt.Sprintf("%s contains the backup of %s: %s, %s, %s.", r.dir, stamp(v.MadeAt), counts(r.report),
		plural(r.revoked, "revocation"), plural(r.audited, "audit record"))
	if len(r.from) > 0 {
		text += " Later revocations and audit records are from " + strings.Join(r.from, " and ") + "."
	} else {
		text += " Later revocations and audit records are not in it: before you put keys there, merge them with --revocations-from."
	}
	return r.shell.say(v, "%s", text)
}
