package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/store"
)

// queuesDir is the directory of messages in a data directory.
const queuesDir = "queues"

// storeIn returns the path of the messages: path is a backup, a data directory, or the
// directory of messages in one.
func storeIn(path string) string {
	if inside := filepath.Join(path, queuesDir); isDirectory(filepath.Join(inside, "db")) {
		return inside
	}
	return path
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// offline explains an error about a directory or backup; no daemon is involved.
func offline(err error) error {
	if _, explained := errors.AsType[*failure](err); explained {
		return err
	}
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	named := *e
	if named.Field != "" {
		named.Field += ":"
	}
	f := &failure{exit: exitFailed, code: codeName(e.Code), cause: err, sentence: because(&named)}
	if e.Field != "" && e.Detail == "" && errors.Is(err, fs.ErrNotExist) {
		f.exit, f.sentence = exitUsage, e.Field+" cannot be read (no such file or directory)"
		return f
	}
	switch e.Code {
	case driver.ErrInvalid, driver.ErrUnsupported:
		f.exit = exitUsage
	case driver.ErrNotFound:
		f.exit = exitNotFound
	case driver.ErrConflict:
		f.exit = exitConflict
	case driver.ErrFull:
		f.exit = exitFull
	}
	return f
}

// checkView is the result of mailbox check in JSON.
type checkView struct {
	Path     string   `json:"path"`
	OK       bool     `json:"ok"`
	Queues   int      `json:"queues"`
	Messages int      `json:"messages"`
	Dead     int      `json:"dead"`
	Keys     int      `json:"dedup_keys"`
	Orphans  int      `json:"orphans"`
	Damaged  int      `json:"damaged"`
	Problems []string `json:"problems"`
}

func viewOfReport(path string, r *diskbox.Report) checkView {
	return checkView{path, len(r.Problems) == 0, r.Queues, r.Messages, r.Dead, r.Keys, r.Orphans, r.Damaged, append([]string{}, r.Problems...)}
}

func (s *shell) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check BACKUP|DIRECTORY", Short: "Check a backup, or the directory of a stopped daemon",
		Long: "Read everything in a backup, or in the data directory of a stopped daemon, and verify it: checksums of files\n" +
			"and records, indexes and counts. It changes nothing. The exit code is 1 if something is wrong.",
		Args: wants(1, 1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			report, err := diskbox.Check(ctx, storeIn(args[0]), nil)
			if err != nil {
				return offline(err)
			}
			addFiles(args[0], report)
			if s.global.json {
				err = s.object(viewOfReport(args[0], report))
			} else {
				err = s.sayReport(args[0], report)
			}
			if err == nil && len(report.Problems) > 0 {
				return silentExit(exitFailed)
			}
			return err
		}),
	}
}

// addFiles adds the problems of the revocations and the audit log in a data directory.
// Those of a backup are verified with it.
func addFiles(dir string, report *diskbox.Report) {
	if !isDirectory(dir) {
		return
	}
	path := filepath.Join(dir, revocationsFile)
	if _, err := revocation.ReadFile(path); err != nil && !errors.Is(err, driver.ErrNotFound) {
		report.Problems = append(report.Problems, path+": "+rootCause(err))
	}
	path = filepath.Join(dir, audit.FileName)
	switch _, damaged, err := audit.Read(dir); {
	case err != nil:
		report.Problems = append(report.Problems, path+": "+rootCause(err))
	case damaged > 0:
		report.Problems = append(report.Problems, path+": "+plural(damaged, "record")+" damaged")
	}
}

// sayReport writes the counts, and each problem on its own line.
func (s *shell) sayReport(path string, r *diskbox.Report) error {
	verdict := "no problems"
	if n := len(r.Problems); n > 0 {
		verdict = plural(n, "problem")
	}
	if err := s.line("%s: %s; %s.", path, counts(r), verdict); err != nil {
		return err
	}
	for _, problem := range r.Problems {
		if err := s.line("- %s", problem); err != nil {
			return err
		}
	}
	return nil
}

func (s *shell) repairCommand() *cobra.Command {
	var dryRun, yes bool
	c := &cobra.Command{
		Use: "repair DIRECTORY", Short: "Repair the directory of a stopped daemon",
		Long: "Show what is damaged in the data directory of a stopped daemon, ask, and rebuild indexes and counts from the messages.\n" +
			"No message is removed: those that are damaged become dead letters with reason integrity when the daemon starts.\n" +
			"With --dry-run it only shows. Damage to files whose extent is unknown is refused: restore a backup.",
		Example: "mailbox repair --dry-run /var/lib/mailboxd\nmailbox repair /var/lib/mailboxd",
		Args:    wants(1, 1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			if !isDirectory(args[0]) && !dryRun {
				return usageError("%s is not a directory; a backup cannot be repaired, take another", args[0])
			}
			if dryRun {
				return s.repairDryRun(ctx, args[0])
			}
			return s.repair(ctx, args[0], yes)
		}),
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what is damaged")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// repair shows what is wrong, asks and repairs.
func (s *shell) repair(ctx context.Context, path string, yes bool) error {
	report, found := diskbox.Check(ctx, storeIn(path), nil)
	if found != nil && !errors.Is(found, driver.ErrIntegrity) {
		return offline(found)
	}
	var err error
	switch {
	case s.global.json:
	case found != nil: // it could not read to the end
		err = s.line("- %s", offline(found).Error())
	default:
		err = s.sayReport(path, report)
	}
	if err == nil && (found != nil || len(report.Problems) > 0) {
		err = s.confirm(yes, "repairing "+path)
	}
	if err != nil {
		return err
	}
	done, err := diskbox.Repair(ctx, storeIn(path), nil)
	if errors.Is(err, driver.ErrIntegrity) {
		return beyondRepair(err)
	}
	if err != nil {
		return offline(err)
	}
	if s.global.json {
		return s.object(repairView{path, done.Rebuilt, done.Removed, done.Damaged})
	}
	return s.line("%s: %s rebuilt, %s removed, %s damaged.", path, plural(done.Rebuilt, "record"), plural(done.Removed, "record"), plural(done.Damaged, "message"))
}

// repairView is the result of mailbox repair in JSON.
type repairView struct {
	Path    string `json:"path"`
	Rebuilt int    `json:"rebuilt"`
	Removed int    `json:"removed"`
	Damaged int    `json:"damaged"`
}

// beyondRepair explains damage whose extent is unknown.
func beyondRepair(err error) error {
	f := offline(err).(*failure) //nolint:errorlint,forcetypeassert // offline returns a *failure for a driver.Error
	if errors.Is(err, store.ErrOneBit) {
		f.advice = "no message is lost: start the daemon, or run mailbox repair, which restores the bit, and check the disk"
		return f
	}
	f.sentence += ": how much would be lost cannot be known"
	f.advice = "restore a backup with mailbox restore, and keep this directory until that has worked"
	return f
}

func (s *shell) repairDryRun(ctx context.Context, path string) error {
	report, err := diskbox.Check(ctx, storeIn(path), nil)
	if errors.Is(err, driver.ErrIntegrity) {
		return beyondRepair(err)
	}
	if err != nil {
		return offline(err)
	}
	if s.global.json {
		err = s.object(viewOfReport(path, report))
	} else {
		if err = s.sayReport(path, report); err == nil && len(report.Problems) > 0 {
			err = s.line("Is lost: %s of %d. Would be rebuilt from the messages: indexes and counts of the other problems. Nothing was changed.",
				plural(report.Damaged, "damaged message"), report.Messages+report.Dead)
		}
	}
	if err == nil && len(report.Problems) > 0 {
		return silentExit(exitFailed)
	}
	return err
}

// dumpedView is a message in a directory or backup in JSON.
type dumpedView struct {
	Tenant string `json:"tenant,omitempty"`
	Shard  int    `json:"shard,omitempty"`
	Size   int    `json:"bytes"`
	messageView
}

// sealAttribute is the attribute that the daemon adds to a message.
const sealAttribute = "mailbox.env"

func (s *shell) dumpCommand() *cobra.Command {
	var bodies bool
	var queue string
	c := &cobra.Command{
		Use: "dump BACKUP|DIRECTORY", Short: "Write the messages of a backup, or of a stopped daemon, as JSON",
		Long: "Write every message of a backup, or of the data directory of a stopped daemon, as a line of JSON: by\n" +
			"queue, in the order in which they would be received, then dead letters. Bodies are left out unless --bodies is\n" +
			"given. It changes nothing.",
		Example: "mailbox dump backup.tar | jq -r .id\nmailbox dump /var/lib/mailboxd --queue orders --bodies",
		Args:    wants(1, 1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			found := make(map[string]bool)
			err := offline(diskbox.List(ctx, storeIn(args[0]), nil, func(l *diskbox.Listed) error {
				v := viewOfListed(l, time.Now())
				found[v.Queue] = true
				if queue != "" && v.Queue != queue {
					return nil
				}
				if bodies {
					v.setBody(l.Body)
				}
				return s.object(v)
			}))
			if err == nil && queue != "" && !found[queue] {
				return &failure{exit: exitNotFound, code: "not_found", sentence: fmt.Sprintf("%s has no message of a queue %s", args[0], queue), advice: queuesIn(found)}
			}
			return err
		}),
	}
	c.Flags().BoolVar(&bodies, "bodies", false, "write bodies too")
	c.Flags().StringVar(&queue, "queue", "", "write the messages of this queue only")
	return c
}

// queuesIn names the queues that a dump has messages of.
func queuesIn(found map[string]bool) string {
	if len(found) == 0 {
		return "it has no messages at all"
	}
	names := slices.Sorted(maps.Keys(found))
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return "it has messages of " + strings.Join(names, ", ")
}

func viewOfListed(l *diskbox.Listed, now time.Time) dumpedView {
	v := dumpedView{Shard: l.Shard, Size: l.Size}
	v.messageView = messageView{
		ID: l.ID, Queue: l.Queue, State: l.State, Group: l.Group, ReplyTo: l.ReplyTo, CorrelationID: l.CorrelationID,
		Deliveries: l.Deliveries, EnqueuedAt: timeOf(l.EnqueuedAt), LastError: l.LastError, Reason: string(l.Reason),
	}
	// A daemon stores the queues of a tenant as ~tenant~queue.
	if tenant, queue, ok := strings.Cut(strings.TrimPrefix(l.Queue, "~"), "~"); ok && strings.HasPrefix(l.Queue, "~") {
		v.Tenant, v.Queue = tenant, queue
	}
	if l.DueIn > 0 {
		v.DueAt = timeOf(now.Add(l.DueIn))
	}
	for name, value := range l.Attributes {
		if name == sealAttribute {
			continue
		}
		if v.Attributes == nil {
			v.Attributes = make(map[string]string)
		}
		v.Attributes[name] = value
	}
	return v
}

// unfit returns the error about a directory that cannot be used.
func unfit(dir, format string, args ...any) error {
	return &failure{exit: exitConflict, code: "conflict", sentence: dir + " " + fmt.Sprintf(format, args...)}
}
