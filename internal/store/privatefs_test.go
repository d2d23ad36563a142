package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// expectPrivate fails for every file and directory that others than the owner can access.
func expectPrivate(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist) && !entry.IsDir():
			return nil // an open store removes files that it does not need
		case err != nil:
			return err
		}
		want := fs.FileMode(privateFile)
		if entry.IsDir() {
			want = privateDir
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s is %v, want %v", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStoreIsForItsOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permissions of this kind")
	}
	dir, backup := filepath.Join(t.TempDir(), "above", "store"), filepath.Join(t.TempDir(), "backup")
	if err := os.Mkdir(backup, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a reopened store has other files
		s, err := Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		expectPrivate(t, filepath.Dir(dir))
		if err := s.Backup(t.Context(), backup); err != nil {
			t.Fatal(err)
		}
		expectPrivate(t, backup)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(backup); err != nil {
			t.Fatal(err)
		}
	}
	expectPrivate(t, filepath.Dir(dir))
}

func TestOpenTightensOldDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permissions of this kind")
	}
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		s, err := Open(t.Context(), dir, &Options{ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || (info.Mode().Perm() == privateDir) == readOnly {
			t.Errorf("with read only %t the directory is %v, %v", readOnly, info.Mode(), err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
