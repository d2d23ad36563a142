package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// diskOptions are options for a store on the real disk.
func diskOptions() *Options {
	return &Options{MemTableBytes: 1 << 20, CacheBytes: 1 << 20, ReserveBytes: -1, BallastBytes: -1, OnFail: func(error) {}}
}

// tree returns the names and contents of all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			files[path] = "directory"
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func wantUntouched(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	after := tree(t, dir)
	delete(after, filepath.Join(dir, lockFile))
	delete(before, filepath.Join(dir, lockFile))
	if len(after) != len(before) {
		t.Errorf("there were %d files, there are %d", len(before), len(after))
	}
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was changed", name)
		}
	}
}

func TestOpenRefusesNonDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), file, diskOptions())
	wantError(t, err, driver.ErrInvalid, file, "not a directory", "give the path")
	_, err = Open(t.Context(), filepath.Join(file, "below"), diskOptions())
	wantError(t, err, driver.ErrInvalid, file, "not a directory")
}

func TestForeignDirectoryIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "letters.txt"), []byte("Dear …"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	_, err := Open(t.Context(), dir, diskOptions())
	wantError(t, err, driver.ErrConflict, dir, "letters.txt", "choose another")
	wantUntouched(t, dir, before)
	if _, err := os.Stat(filepath.Join(dir, lockFile)); err == nil {
		t.Error("a lock file was put into a foreign directory")
	}
}

func TestEmptyDirectoryBecomesStore(t *testing.T) {
	dir := t.TempDir() // like a mounted volume
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir, diskOptions())
	put(t, s, "a", "1")
	mustClose(t, s)
	s = mustOpen(t, dir, diskOptions())
	defer mustClose(t, s)
	wantValue(t, s, "a", "1")
}

func TestOpeningTwiceIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, diskOptions())
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, spelling := range []string{dir, dir + "/", filepath.Join(dir, "..", filepath.Base(dir)), link} {
		_, err := Open(t.Context(), spelling, diskOptions())
		wantError(t, err, driver.ErrConflict, "in use")
	}
	put(t, s, "a", "1")
	mustClose(t, s)
	mustClose(t, mustOpen(t, link, diskOptions()))
}

func TestMissingPermissionIsExplained(t *testing.T) {
	// Root is never refused, so the disk refuses it.
	for _, kind := range []storetest.Kind{storetest.Mkdir, storetest.Create} {
		disk := storetest.NewDisk()
		disk.Before(func(op storetest.Operation) error {
			if op.Kind == kind {
				return &fs.PathError{Op: string(kind), Path: op.Path, Err: syscall.EACCES}
			}
			return nil
		})
		_, err := Open(t.Context(), testDir, memOptions(disk.FS()))
		wantError(t, err, driver.ErrUnavailable, testDir, "no permission", "must belong")
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v does not wrap ErrPermission", err)
		}
	}
}

func TestNewerFormatIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustOpen(t, dir, diskOptions()))
	format := filepath.Join(dir, engineDir, formatFile)
	text := formatText(formatVersion+1, newStoreID())
	if err := os.WriteFile(format, encodeChecked(text+"something new\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	_, err := Open(t.Context(), dir, diskOptions())
	wantError(t, err, driver.ErrUnsupported, format, "format 3", "up to 2", "newer")
	wantUntouched(t, dir, before)
}

func TestEarlierFormatIsRaisedWhenOpenedForWriting(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustOpen(t, dir, diskOptions()))
	path := filepath.Join(dir, engineDir)
	id, _, err := readFormat(vfs.Default, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeChecked(vfs.Default, filepath.Join(path, formatFile), formatText(1, id)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		readOnly bool
		want     int
	}{{true, 1}, {false, formatVersion}} {
		o := diskOptions()
		o.ReadOnly = test.readOnly
		mustClose(t, mustOpen(t, dir, o))
		got, version, err := readFormat(vfs.Default, path)
		if err != nil || got != id || version != test.want {
			t.Errorf("read-only %v: format %d, id kept %v, error %v; want format %d", test.readOnly, version, got == id, err, test.want)
		}
	}
}

func TestDamagedAndMissingFilesAreNamed(t *testing.T) {
	remove := func(name string) error { return os.Remove(name) }
	garble := func(name string) error { return os.WriteFile(name, []byte("not what was here"), 0o644) }
	empty := func(name string) error { return os.Truncate(name, 0) }
	for _, c := range []struct {
		name, pattern string
		damage        func(string) error
		code          driver.Code
	}{
		{"format removed", formatFile, remove, driver.ErrIntegrity},
		{"format garbled", formatFile, garble, driver.ErrIntegrity},
		{"seal removed", "seal-MANIFEST-*", remove, driver.ErrIntegrity},
		{"seal garbled", "seal-MANIFEST-*", garble, driver.ErrIntegrity},
		{"manifest removed", "MANIFEST-*", remove, driver.ErrIntegrity},
		{"manifest garbled", "MANIFEST-*", garble, driver.ErrIntegrity},
		{"manifest marker removed", "marker.manifest.*", remove, driver.ErrIntegrity},
		{"format marker removed", "marker.format-version.*", remove, driver.ErrIntegrity},
		{"table removed", "*.sst", remove, driver.ErrIntegrity},
		{"options garbled", "OPTIONS-*", garble, driver.ErrIntegrity},
		{"log removed", "*.log", remove, driver.ErrIntegrity},
		{"log emptied", "*.log", empty, driver.ErrIntegrity},
		{"list of logs removed", logListFile, remove, driver.ErrIntegrity},
		{"list of logs garbled", logListFile, garble, driver.ErrIntegrity},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, diskOptions())
			put(t, s, "a", "1")
			mustClose(t, s)
			names, err := filepath.Glob(filepath.Join(dir, engineDir, c.pattern))
			if err != nil || len(names) == 0 {
				t.Fatalf("%v, %v", names, err)
			}
			for _, name := range names {
				if err := c.damage(name); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, dir)
			_, err = Open(t.Context(), dir, diskOptions())
			wantError(t, err, c.code, filepath.Join(dir, engineDir), "restore")
			t.Log(err)
			if strings.Contains(err.Error(), "nothing was changed") {
				wantUntouched(t, dir, before)
			}
		})
	}
}

func TestFilesOfAnotherStoreAreDetected(t *testing.T) {
	mine, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{mine, other} {
		mustClose(t, mustOpen(t, dir, diskOptions()))
	}
	theirs, err := os.ReadFile(filepath.Join(other, engineDir, formatFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mine, engineDir, formatFile), theirs, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), mine, diskOptions())
	wantError(t, err, driver.ErrIntegrity, mine, "two different stores")
}

func TestHalfCreatedStoreIsRemoved(t *testing.T) {
	for _, made := range []bool{false, true} {
		mem := vfs.NewMem()
		if made {
			s := mustOpen(t, testDir, memOptions(mem))
			put(t, s, "a", "1")
			mustClose(t, s)
		}
		half := mem.PathJoin(testDir, creatingDir)
		if err := mem.MkdirAll(half, 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, mem, mem.PathJoin(half, "000001.log"), []byte("half"))
		s := mustOpen(t, testDir, memOptions(mem))
		if made {
			wantValue(t, s, "a", "1")
		}
		mustClose(t, s)
		if _, err := mem.Stat(half); err == nil {
			t.Errorf("%s is still there", half)
		}
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for field, o := range map[string]*Options{
		"MemTableBytes": {MemTableBytes: 1},
		"CacheBytes":    {CacheBytes: -1},
		"SealAfter":     {SealAfter: -1},
		"SlowDisk":      {SlowDisk: -1},
		"Sync":          {Sync: SyncInterval(0)},
	} {
		o.FS = vfs.NewMem()
		_, err := Open(t.Context(), testDir, o)
		wantError(t, err, driver.ErrInvalid, field)
	}
}

func TestCancelledContextStopsOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mem := vfs.NewMem()
	if _, err := Open(ctx, testDir, memOptions(mem)); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	mustClose(t, mustOpen(t, testDir, memOptions(mem)))
}

func TestReadOnlyStoreChangesNothing(t *testing.T) {
	dir := t.TempDir()
	o := diskOptions()
	o.ReadOnly = true
	_, err := Open(t.Context(), dir, o)
	wantError(t, err, driver.ErrNotFound, dir, "check the path")
	_, err = Open(t.Context(), filepath.Join(dir, "missing"), o)
	wantError(t, err, driver.ErrNotFound, dir)
	s := mustOpen(t, dir, diskOptions())
	put(t, s, "a", "1")
	mustClose(t, s)
	before := tree(t, dir)
	s = mustOpen(t, dir, o)
	wantValue(t, s, "a", "1")
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	b := s.NewBatch()
	b.Set([]byte("b"), []byte("2"))
	wantError(t, s.Commit(b, true), driver.ErrUnsupported, "reading only")
	wantError(t, s.DropRange(t.Context(), []byte("a"), []byte("b")), driver.ErrUnsupported)
	wantError(t, s.Backup(t.Context(), filepath.Join(dir, "backup")), driver.ErrUnsupported)
	mustClose(t, s)
	wantUntouched(t, dir, before)
}
