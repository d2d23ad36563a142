package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/server"
)

// backedUp takes a backup of a daemon, and returns its file.
func (d *daemon) backedUp(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup.tar")
	d.must(t, append([]string{"backup", path}, args...)...)
	return path
}

// minted mints a token.
func (d *daemon) minted(t *testing.T, args ...string) string {
	t.Helper()
	return d.must(t, append([]string{"cap", "mint", "--queue", "*", "--expires", "1h"}, args...)...)
}

// with returns the environment of a client with another token.
func (d *daemon) with(token string) []string { return d.environ("MAILBOX_TOKEN=" + token) }

func TestBackupRestoresToItsContent(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "send", "jobs", "first")
	dir := t.TempDir()
	var v struct {
		File                   string
		Queues, Messages, Dead int
	}
	if err := json.Unmarshal([]byte(d.must(t, "backup", dir, "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(v.File) != dir || v.Queues != 1 || v.Messages != 1 {
		t.Errorf("got %+v", v)
	}
	d.must(t, "send", "jobs", "second")
	if text := d.must(t, "check", v.File); !strings.Contains(text, "1 queue, 1 message, 0 dead letters; no problems.") {
		t.Errorf("check says %s", text)
	}
	if text := d.must(t, "dump", v.File); strings.Contains(text, "first") || strings.Count(text, `"state":"ready"`) != 1 {
		t.Errorf("dump says %s", text)
	}
	if text := d.must(t, "dump", v.File, "--bodies", "--queue", "jobs"); !strings.Contains(text, `"body":"first"`) {
		t.Errorf("dump says %s", text)
	}
	restored := filepath.Join(t.TempDir(), "data")
	d.must(t, "restore", v.File, restored)
	d.mailbox(t, "restore", v.File, restored).wantCode(t, 7, "is not empty")
	d.mailbox(t, "check", d.dir).wantCode(t, 7, "in use by another process")
	d.stop()
	again := start(t, server.Config{DataDir: restored})
	if text := again.must(t, "recv", "jobs", "--max", "9", "--ack"); strings.Contains(text, "second") || !strings.Contains(text, "first") {
		t.Errorf("received %s", text)
	}
	for _, name := range []string{"keys.lock", "revocations.lock", "queues/db.archive"} {
		if _, err := os.Stat(filepath.Join(restored, name)); err == nil && name == "queues/db.archive" {
			t.Errorf("%s is there", name)
		}
	}
}

// A second backup to the same file completes while the first is being read.
func TestConcurrentBackupsToOneFileBothFinish(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "send", "jobs", "first")
	path := filepath.Join(t.TempDir(), "backup.tar")
	target, err := url.Parse("http://" + d.Address(server.HTTP))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(response *http.Response) error {
		content, err := io.ReadAll(response.Body)
		half := len(content) / 2
		second := func() { d.must(t, "backup", path) }
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(content[:half]), &pause{do: second}, bytes.NewReader(content[half:])), response.Body}
		return err
	}
	between := httptest.NewServer(proxy)
	defer between.Close()
	d.mailbox(t, "backup", path, "--addr", between.URL).wantCode(t, 7, "exists already")
	d.must(t, "check", path)
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("%v are there", left)
	}
}

// A pause is an empty reader that calls a function first.
type pause struct{ do func() }

func (p *pause) Read([]byte) (int, error) {
	p.do()
	return 0, io.EOF
}

func TestBackupRefusesNamesThatAreNotFiles(t *testing.T) {
	d := start(t, onDisk())
	t.Chdir(t.TempDir())
	for _, name := range []string{"", "-"} {
		d.mailbox(t, "backup", "--", name).wantCode(t, 2, "FILE")
	}
	if left, _ := filepath.Glob("*"); len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
}

func TestBackupOfMemoryBackendIsRefused(t *testing.T) {
	d := start(t, inMemory())
	path := filepath.Join(t.TempDir(), "backup.tar")
	d.mailbox(t, "backup", path).wantCode(t, 2, "memory: stores nothing")
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
}

func TestBackupOfDaemonOnRedisNamesRedisTool(t *testing.T) {
	config := onDisk()
	config.Backend = "redis://" + redistest.Standalone(t).Addr()
	d := start(t, config)
	d.must(t, "send", "jobs", "hello")
	path := filepath.Join(t.TempDir(), "backup.tar")
	for _, token := range []string{d.OperatorToken().Reveal(), d.minted(t, "--op", "backup")} {
		mailbox(t, d.with(token), "backup", path).wantCode(t, 2, "redis-cli --rdb")
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) > 0 {
		t.Errorf("a refused backup left %v, %v", files, err)
	}
	if got := d.must(t, "recv", "jobs", "--ack"); !strings.Contains(got, "hello") {
		t.Errorf("received %q", got)
	}
}

func TestBackupNeedsTokenThatNamesIt(t *testing.T) {
	d := start(t, onDisk())
	path := filepath.Join(t.TempDir(), "backup.tar")
	for name, token := range map[string]string{
		"all operations":     d.minted(t, "--op", "*"),
		"of some queues":     d.must(t, "cap", "mint", "--op", "backup", "--queue", "jobs", "--expires", "1h"),
		"minted with a star": mintedWith(t, d, d.minted(t, "--op", "*"), "--op", "backup"),
	} {
		if r := mailbox(t, d.with(token), "backup", path); r.code != 4 || !strings.Contains(r.stderr, `does not allow "backup"`) {
			t.Errorf("a token for %s: exit code %d, %s", name, r.code, r.stderr)
		}
	}
	named := d.minted(t, "--op", "backup")
	mailbox(t, d.with(named), "backup", path, "--keys").wantCode(t, 4, `"admin"`)
	mailbox(t, d.with(d.minted(t, "--op", "backup", "--tenant", "acme")), "backup", path).wantCode(t, 4, "all tenants")
	mailbox(t, d.with(named), "backup", path).wantCode(t, 0)
	mailbox(t, d.with(named), "backup", path).wantCode(t, 7, "exists already")
}

// mintedWith mints a token with another one, over HTTP.
func mintedWith(t *testing.T, d *daemon, token string, args ...string) string {
	t.Helper()
	r := mailbox(t, d.with(token), append([]string{"cap", "mint", "--queue", "*", "--expires", "1h"}, args...)...)
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

func TestRestoreRevivesNoRevokedToken(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "send", "jobs", "hello")
	before, after, good := d.minted(t, "--op", "stats"), d.minted(t, "--op", "stats"), d.minted(t, "--op", "stats")
	revoke := func(token string) {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		d.must(t, "cap", "revoke", "--file", file, "--yes")
	}
	revoke(before)
	backup := d.backedUp(t, "--keys")
	revoke(after)
	d.stop()
	elsewhere := []string{"HOME=" + t.TempDir()}
	parent := t.TempDir()
	mailbox(t, elsewhere, "restore", backup, filepath.Join(parent, "refused")).wantCode(t, 7, "revocations after", "--revocations-from", "--retire-keys")
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("a refused restore left %v, %v", entries, err)
	}
	for name, test := range map[string]struct {
		args, environ []string
		good          int
	}{
		"found":   {nil, []string{"MAILBOXD_DATA_DIR=" + d.dir}, 0},
		"named":   {[]string{"--revocations-from", d.dir}, elsewhere, 0},
		"retired": {[]string{"--retire-keys"}, elsewhere, 4},
		"both":    {[]string{"--retire-keys", "--revocations-from", d.dir}, elsewhere, 4},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(parent, name)
			mailbox(t, test.environ, append([]string{"restore", backup, dir}, test.args...)...).wantCode(t, 0)
			again := start(t, server.Config{DataDir: dir})
			for token, code := range map[string]int{before: 4, after: 4, good: test.good} {
				mailbox(t, again.with(token), "stats", "jobs").wantCode(t, code)
			}
			again.must(t, "stats", "jobs") // with the operator's token
		})
	}
}

func TestRestoreKeepsLaterRetirementsOfKeys(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "send", "jobs", "hello")
	token := d.minted(t, "--op", "stats")
	mailbox(t, d.with(token), "stats", "jobs").wantCode(t, 0)
	backup := d.backedUp(t, "--keys")
	d.must(t, "keys", "rotate", "--retire", "--yes")
	d.stop()
	dir := filepath.Join(t.TempDir(), "data")
	mailbox(t, []string{"MAILBOXD_DATA_DIR=" + d.dir}, "restore", backup, dir).wantCode(t, 0)
	again := start(t, server.Config{DataDir: dir})
	mailbox(t, again.with(token), "stats", "jobs").wantCode(t, 4)
	again.must(t, "stats", "jobs")
}

func TestRestoreIgnoresKeysFromBeforeBackup(t *testing.T) {
	d := start(t, onDisk())
	stale := t.TempDir()
	for _, name := range []string{"keys", "revocations"} {
		content, err := os.ReadFile(filepath.Join(d.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(stale, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d.must(t, "keys", "rotate", "--retire", "--yes")
	config := d.Config()
	if err := d.Reload(config); err != nil {
		t.Fatal(err)
	}
	backup := d.backedUp(t, "--keys")
	dir := filepath.Join(t.TempDir(), "data")
	mailbox(t, nil, "restore", backup, dir, "--revocations-from", stale).wantCode(t, 7, "--retire-keys")
	mailbox(t, nil, "restore", backup, dir, "--revocations-from", d.dir).wantCode(t, 0)
}

func TestRestoreAcceptsWorkingDirectoryButNoEmptyName(t *testing.T) {
	d := start(t, onDisk())
	backup := d.backedUp(t)
	dir := t.TempDir()
	t.Chdir(dir)
	d.mailbox(t, "restore", backup, "").wantCode(t, 2, "DIRECTORY")
	d.mailbox(t, "restore", d.dir, ".").wantCode(t, 2, "BACKUP", "is a directory")
	d.must(t, "restore", backup, ".")
	if _, err := os.Stat(filepath.Join(dir, "queues")); err != nil {
		t.Error(err)
	}
}

func TestRestoreFollowsLinkOfDirectory(t *testing.T) {
	d := start(t, onDisk())
	backup := d.backedUp(t)
	for name, exists := range map[string]bool{"empty": true, "missing": false} {
		volume, dir := t.TempDir(), t.TempDir()
		target, link := filepath.Join(volume, name), filepath.Join(dir, "data")
		if exists {
			if err := os.Mkdir(target, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		d.must(t, "restore", backup, link)
		to, err := os.Readlink(link)
		if err != nil || to != target {
			t.Errorf("%s: the link leads to %q, %v", name, to, err)
		}
		if _, err := os.Stat(filepath.Join(target, "queues")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that root creates there would keep the daemon, which runs as another user, from
// starting.
func TestReadingRestoredDirectoryAddsNoFile(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "send", "jobs", "hello")
	dir := filepath.Join(t.TempDir(), "data")
	d.must(t, "restore", d.backedUp(t), dir)
	files := func() (names []string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			names = append(names, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := files()
	for _, args := range [][]string{{"check", dir}, {"repair", "--dry-run", dir}, {"dump", dir}} {
		d.must(t, args...)
		if after := files(); !slices.Equal(before, after) {
			t.Errorf("%v: the files were %v, and are %v", args, before, after)
		}
	}
}

func TestDamagedDirectoryIsReportedAndNotChanged(t *testing.T) {
	d := start(t, onDisk())
	for range 50 {
		d.must(t, "send", "jobs", strings.Repeat("x", 100))
	}
	backup := d.backedUp(t)
	d.stop()
	mailbox(t, nil, "repair", backup).wantCode(t, 2, "not a directory")
	mailbox(t, nil, "repair", d.dir).wantCode(t, 0)
	mailbox(t, nil, "repair", "--dry-run", d.dir).wantCode(t, 0)
	content, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	content[len(bytes.TrimRight(content, "\x00"))/2] ^= 1 // what follows was reserved
	if err := os.WriteFile(backup, content, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{{"check", backup}, {"restore", backup, dir}, {"repair", "--dry-run", backup}} {
		if r := mailbox(t, nil, args...); r.code != 1 {
			t.Errorf("mailbox %v of a damaged backup: exit code %d, %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a damaged backup was restored")
	}
	if err := os.WriteFile(filepath.Join(d.dir, "revocations"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := mailbox(t, nil, "check", d.dir); r.code != 1 || !strings.Contains(r.stdout, "1 problem") || !strings.Contains(r.stdout, "record 0 is damaged") {
		t.Errorf("check of damaged revocations: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "audit.log"), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := mailbox(t, nil, "check", d.dir); r.code != 1 || !strings.Contains(r.stdout, "audit.log: 1 record damaged") {
		t.Errorf("check of a damaged audit log: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	mailbox(t, nil, "check", filepath.Join(t.TempDir(), "nowhere")).wantCode(t, 5, "check the path")
}

func TestRepairSaysThatFlippedBitLosesNothing(t *testing.T) {
	d := start(t, onDisk())
	for range 50 {
		d.must(t, "send", "jobs", strings.Repeat("x", 100))
	}
	d.stop()
	logs, err := filepath.Glob(filepath.Join(d.dir, "queues", "db", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	log := slices.Max(logs)
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	content[len(bytes.TrimRight(content, "\x00"))/2] ^= 1 // what follows was reserved
	if err := os.WriteFile(log, content, 0o600); err != nil {
		t.Fatal(err)
	}
	r := mailbox(t, nil, "repair", "--dry-run", d.dir)
	if r.code != 1 || !strings.Contains(r.stderr, "one bit of byte") || !strings.Contains(r.stderr, "no message is lost") {
		t.Errorf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if after, err := os.ReadFile(log); err != nil || !bytes.Equal(after, content) {
		t.Errorf("the log was changed, %v", err)
	}
	r = mailbox(t, nil, "repair", d.dir)
	if r.wantCode(t, 2, "--yes"); !strings.Contains(r.stdout, "one bit of byte") {
		t.Errorf("repair does not say what is damaged: %s", r.stdout)
	}
	mailbox(t, nil, "repair", "--yes", d.dir).wantCode(t, 0)
	if r := mailbox(t, nil, "check", d.dir); r.code != 0 || !strings.Contains(r.stdout, "50 messages") {
		t.Errorf("after the repair: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

// audited returns the subjects and queues of the audit records of a daemon, in order.
func (d *daemon) audited(t *testing.T) (records []string) {
	t.Helper()
	for line := range strings.Lines(d.must(t, "audit", "--json")) {
		var v struct{ Operation, Queue string }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		records = append(records, strings.TrimSpace(v.Operation+" "+v.Queue))
	}
	return records
}

func TestRestoreMergesAuditOfBackupAndDirectory(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "queues", "create", "before")
	d.must(t, "queues", "create", "dropped")
	backup := d.backedUp(t, "--keys")
	d.must(t, "queues", "create", "after")
	d.stop()
	log := filepath.Join(d.dir, "audit.log")
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), "\n") // like a log that was full
	if err := os.WriteFile(log, []byte(rest), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"merged": {[]string{"--revocations-from", d.dir}, []string{"configure before", "configure dropped", "backup", "configure after"}},
		"alone":  {[]string{"--retire-keys"}, []string{"configure before", "configure dropped"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			r := mailbox(t, []string{"HOME=" + t.TempDir()}, append([]string{"restore", backup, dir}, test.args...)...)
			r.wantCode(t, 0)
			if want := fmt.Sprintf("%d audit records", len(test.want)); !strings.Contains(r.stdout, want) {
				t.Errorf("restore says %s, want %q", r.stdout, want)
			}
			again := start(t, server.Config{DataDir: dir})
			if got := again.audited(t); !slices.Equal(got, test.want) {
				t.Errorf("the audit has %q, want %q", got, test.want)
			}
		})
	}
	if left, err := os.ReadFile(log); err != nil || string(left) != rest {
		t.Errorf("the restore changed the old log, %v", err)
	}
}

func TestBackupOfEarlierVersionRestoresWithoutAudit(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "send", "jobs", "hello")
	d.must(t, "queues", "create", "other")
	d.stop()
	disk, err := diskbox.Open(t.Context(), filepath.Join(d.dir, "queues"), nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "backup.tar"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = disk.WriteBackup(t.Context(), file, func() ([]diskbox.BackupFile, error) {
		return []diskbox.BackupFile{{Name: "revocations", Content: revocation.Encode(func(func(revocation.Revocation) bool) {})}}, nil
	})
	if err = errors.Join(err, file.Close(), disk.Close()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"": nil, d.dir: {"configure other"}} {
		dir := filepath.Join(t.TempDir(), "data")
		args := []string{"restore", file.Name(), dir}
		if name != "" {
			args = append(args, "--revocations-from", name)
		}
		mailbox(t, []string{"HOME=" + t.TempDir()}, args...).wantCode(t, 0)
		again := start(t, server.Config{DataDir: dir})
		if got := again.audited(t); !slices.Equal(got, want) {
			t.Errorf("the audit has %q, want %q", got, want)
		}
		again.stop()
	}
}
