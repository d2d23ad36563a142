package diskbox

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// These tests open directories that cannot be opened. Each is refused with an error that names
// the file and says what to do, and stays unchanged.

// snapshot returns the mode and content of every file under dir.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files[path] += fmt.Sprintf(" %d %x", len(content), sha256.Sum256(content))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// expectRefused fails the test unless err has the code and contains all texts.
func expectRefused(t *testing.T, err error, code driver.Code, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was opened")
	}
	if !errors.Is(err, code) {
		t.Errorf("%v; want %q", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v; it should say %q", err, text)
		}
	}
}

// expectUntouched fails the test if a file under dir has changed.
func expectUntouched(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	after := snapshot(t, dir)
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] != before[path] {
			t.Errorf("%s was %q and is %q", path, before[path], after[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[path]; !ok {
			t.Errorf("%s is new", path)
		}
	}
}

// refuse opens dir, which must fail.
func refuse(t *testing.T, dir string) error {
	t.Helper()
	b, err := Open(t.Context(), dir, &Options{small: true})
	if err == nil {
		_ = b.Close()
	}
	return err
}

const sampleMessages = 400

// sampleDir returns a directory with messages, in files of all kinds.
func sampleDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "queues")
	for range 2 { // opened twice, so that there are tables
		b, err := Open(t.Context(), dir, &Options{small: true})
		if err != nil {
			t.Fatal(err)
		}
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for range sampleMessages / 2 / 10 {
			batch := make([]driver.Outgoing, 10)
			for i := range batch {
				batch[i].Body = []byte(strings.Repeat("tea ", 100))
			}
			if _, err := q.Send(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sampleIsComplete checks that every message of a sample can be received.
func sampleIsComplete(ctx context.Context, b *Backend) error {
	q, err := b.OpenQueue(ctx, "orders")
	if err != nil {
		return err
	}
	received := 0
	for {
		got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 100, Visibility: time.Minute})
		if err != nil {
			return err
		}
		for _, d := range got {
			if string(d.Body) != strings.Repeat("tea ", 100) {
				return fmt.Errorf("message %s has another body", d.ID)
			}
		}
		received += len(got)
		if len(got) == 0 && received != sampleMessages {
			return fmt.Errorf("%d messages of %d", received, sampleMessages)
		}
		if len(got) == 0 {
			return nil
		}
	}
}

func TestOpenRefusesNonDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	expectRefused(t, refuse(t, file), driver.ErrInvalid, file, "is not a directory", "give the path of one")
	expectRefused(t, refuse(t, filepath.Join(file, "queues")), driver.ErrInvalid, file, "is not a directory")
	expectUntouched(t, dir, before)
}

func TestOpenRefusesNewerFormat(t *testing.T) {
	dir := sampleDir(t)
	file := filepath.Join(dir, "db", "MAILBOX_FORMAT")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(content), "check ")
	title, rest, _ := strings.Cut(text, "\n")
	newer := title[:strings.LastIndexByte(title, ' ')] + " 99\n" + rest
	newer += fmt.Sprintf("check %08x\n", crc32.Checksum([]byte(newer), crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(file, []byte(newer+newer), 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	expectRefused(t, refuse(t, dir), driver.ErrUnsupported, file, "99", "newer")
	expectUntouched(t, dir, before)
}

// damages are ways to damage a file.
var damages = map[string]func(path string) error{
	"missing": os.Remove,
	"empty":   func(path string) error { return os.Truncate(path, 0) },
	"zeroed": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, make([]byte, info.Size()), 0o600)
	},
	"replaced": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("thesis ", 100)), 0o600) },
	"halved": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	},
}

// A damaged file is refused and nothing changes, or the damage has no effect. The newest log is
// left out: damage at its end looks like a power cut. See
// TestNoFlippedBitLosesOrChangesAMessage for the rest of it.
func TestDamagedFilesAreRefusedOrHarmless(t *testing.T) {
	volume.InFull(t)
	sample := sampleDir(t)
	logs, err := filepath.Glob(filepath.Join(sample, "db", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	newest := filepath.Base(slices.Max(logs))
	entries, err := os.ReadDir(filepath.Join(sample, "db"))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := make(map[string]int)
	for _, entry := range entries {
		if entry.Name() == newest {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(damages)) {
			outcome := "does not matter"
			if tryDamaged(t, sample, entry.Name(), name) {
				outcome = "refused"
			}
			outcomes[fmt.Sprintf("%s %s: %s", fileClass(entry.Name()), name, outcome)]++
		}
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%2d %s", outcomes[outcome], outcome)
	}
}

// tryDamaged opens a copy of the sample with a damaged file.
func tryDamaged(t *testing.T, sample, file, damage string) (refused bool) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "queues")
	if err := errors.Join(os.CopyFS(dir, os.DirFS(sample)), damages[damage](filepath.Join(dir, "db", file)), makePrivate(dir)); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	b, err := Open(t.Context(), dir, &Options{small: true})
	if err == nil {
		if err := errors.Join(sampleIsComplete(t.Context(), b), b.Close()); err != nil {
			t.Errorf("%s is %s, and was opened: %v", file, damage, err)
		}
		return false
	}
	expectRefused(t, err, driver.ErrIntegrity, dir, "backup")
	// Damage inside a table is found when it is read, and by then the engine has removed
	// obsolete files.
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Op == "open" {
		expectUntouched(t, dir, before)
	}
	return true
}

// makePrivate gives files and directories the modes of the store: a copy has those of the
// umask, which Open would tighten.
func makePrivate(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	})
}

func playHold(dir string) error {
	b, err := Open(context.Background(), dir, &Options{small: true})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return b.Close()
}

func TestOpenRefusesDirectoryInUse(t *testing.T) {
	dir := sampleDir(t)
	holder := other(t.Context(), "hold", dir)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	// It may still be removing files, so it is stopped for the comparison.
	if err := syscall.Kill(holder.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(holder.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	expectRefused(t, refuse(t, dir), driver.ErrConflict, dir, "in use", "close it")
	expectUntouched(t, dir, before)
	if err := syscall.Kill(holder.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stdin.Close(), holder.Wait()); err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), dir, &Options{small: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sampleIsComplete(t.Context(), b), b.Close()); err != nil {
		t.Error(err)
	}
}

// unprivileged is a user id without rights.
const unprivileged = 65534

// runUnprivileged opens the directory without the permission to do so.
func runUnprivileged(dir string) error {
	if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(unprivileged), syscall.Setuid(unprivileged)); err != nil {
			return err
		}
	}
	_, err := Open(context.Background(), dir, &Options{small: true})
	fmt.Println(err)
	return nil
}

func TestOpenRefusesDirectoryWithoutPermission(t *testing.T) {
	base := t.TempDir()
	for dir := base; strings.HasPrefix(dir, filepath.Join(os.TempDir(), "Test")); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // accessible up to here
			t.Fatal(err)
		}
	}
	readable := sampleDir(t)
	locked, closed := filepath.Join(base, "locked"), filepath.Join(base, "closed")
	if err := errors.Join(os.CopyFS(locked, os.DirFS(readable)), os.Mkdir(closed, 0o700), os.Chmod(filepath.Join(locked, "LOCK"), 0o400), os.Chmod(base, 0o555)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(base, 0o755) })
	if os.Getuid() != 0 {
		if err := os.Chmod(closed, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	}
	for name, dir := range map[string]string{
		"in a directory that cannot be written": filepath.Join(base, "new"),
		"that cannot be read":                   closed,
		"with files that cannot be written":     locked,
	} {
		t.Run(name, func(t *testing.T) {
			var before map[string]string
			if dir == locked {
				before = snapshot(t, dir)
			}
			out, err := other(t.Context(), "unprivileged", dir).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{string(driver.ErrUnavailable), dir, "no permission", "must belong to the user"} {
				if !strings.Contains(string(out), text) {
					t.Errorf("%s; it should say %q", out, text)
				}
			}
			if dir == locked {
				expectUntouched(t, dir, before)
			}
		})
	}
}

// runSmallDisk uses a small disk, mounted over dir and visible to this process only. Its output
// ends with "done", or with the reason why it cannot run.
func runSmallDisk(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		fmt.Println("cannot make mounts private:", err)
		return nil
	}
	size := func(flags uintptr, size string) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size)
	}
	if err := size(0, "4k"); err != nil {
		fmt.Println("cannot mount:", err)
		return nil
	}
	ctx := context.Background()
	queues := filepath.Join(dir, "queues")
	_, err := Open(ctx, queues, &Options{small: true})
	if !errors.Is(err, driver.ErrFull) || !strings.Contains(err.Error(), queues) || !strings.Contains(err.Error(), "free some space") {
		return fmt.Errorf("open on a full disk: %w", err)
	}
	if err := size(syscall.MS_REMOUNT, "3g"); err != nil { // unused, so it needs no memory
		return err
	}
	b, err := Open(ctx, queues, &Options{small: true})
	if err != nil {
		return err
	}
	if err := useSmallDisk(ctx, b, size); err != nil {
		return err
	}
	fmt.Println("done")
	return b.Close()
}

// useSmallDisk fills a disk by shrinking it.
func useSmallDisk(ctx context.Context, b *Backend, size func(flags uintptr, size string) error) error {
	q, err := b.OpenQueue(ctx, "orders")
	if err != nil {
		return err
	}
	// send retries for a minute until it gets the wanted result.
	send := func(wanted func(error) bool) error {
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if _, err = q.Send(ctx, []driver.Outgoing{{Body: []byte("tea")}}); wanted(err) {
				return nil
			}
			<-time.After(100 * time.Millisecond)
		}
		return fmt.Errorf("send still says %w", err)
	}
	isFull := func(err error) bool { return errors.Is(err, driver.ErrFull) && driver.RetryAfter(err) > 0 }
	if err := send(func(err error) bool { return err == nil }); err != nil {
		return err
	}
	if err := errors.Join(size(syscall.MS_REMOUNT, "8m"), send(isFull)); err != nil {
		return err
	}
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err != nil || len(got) != 1 {
		return fmt.Errorf("receive from a full disk: %d, %w", len(got), err)
	}
	if err := q.Ack(ctx, []driver.Receipt{got[0].Receipt}); err != nil {
		return fmt.Errorf("ack on a full disk: %w", err)
	}
	return errors.Join(size(syscall.MS_REMOUNT, "3g"), send(func(err error) bool { return err == nil }))
}

func TestFullDiskIsReportedAndRecovers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := other(ctx, "small disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case errors.Is(err, syscall.EPERM), err == nil && strings.HasPrefix(string(out), "cannot "):
		t.Skipf("mounting a small disk needs privileges that this machine does not give: %v %s", err, out)
	case err != nil || string(out) != "done\n":
		t.Errorf("%v: %s%s", err, out, stderr.String())
	}
}
