package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// archived returns the archive of a store with some records, and its path.
func archived(t *testing.T, s *Store) (content []byte, path string) {
	t.Helper()
	var out bytes.Buffer
	_, err := s.WriteArchive(t.Context(), &out, func() ([]ArchivedFile, error) {
		return []ArchivedFile{{Name: "revocations", Content: []byte("none")}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "backup.tar")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), path
}

func filled(t *testing.T) *Store {
	t.Helper()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store"), diskOptions())
	t.Cleanup(func() { mustClose(t, s) })
	for i := range 100 {
		put(t, s, fmt.Sprintf("key %03d", i), "value")
		if i == 50 {
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func TestArchiveOpensAndRestoresToItsContent(t *testing.T) {
	s := filled(t)
	_, path := archived(t, s)
	put(t, s, "key 000", "later")
	wantAll := func(got *Store) {
		t.Helper()
		for i := range 100 {
			wantValue(t, got, fmt.Sprintf("key %03d", i), "value")
		}
		if err := got.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	}
	opened, err := OpenArchived(t.Context(), path, diskOptions())
	if err != nil {
		t.Fatal(err)
	}
	wantAll(opened)
	mustClose(t, opened)
	a, err := OpenArchive(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if err := a.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if content, ok, err := a.Read("revocations"); string(content) != "none" || !ok || err != nil {
		t.Errorf("read %q, %v, %v", content, ok, err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if err := a.ExtractStore(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	restored := mustOpen(t, dir, diskOptions())
	wantAll(restored)
	put(t, restored, "key 100", "goes on")
	mustClose(t, restored)
	wantError(t, a.ExtractStore(t.Context(), dir), driver.ErrConflict, dir)
}

func TestPartialArchiveIsRefused(t *testing.T) {
	content, path := archived(t, filled(t))
	whole := len(bytes.TrimRight(content, "\x00"))
	for length := 0; length < len(content); length += 512 {
		if err := os.WriteFile(path, content[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := OpenArchive(path)
		if err == nil {
			_ = a.Close()
			if length < whole {
				t.Fatalf("the first %d of %d bytes were taken for a backup", length, len(content))
			}
			continue
		}
		if !errors.Is(err, driver.ErrIntegrity) && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("the first %d bytes: %v", length, err)
		}
	}
}

func TestDamagedArchiveIsRefused(t *testing.T) {
	volume.InFull(t)
	content, path := archived(t, filled(t))
	whole := len(bytes.TrimRight(content, "\x00"))
	undamaged, err := OpenArchive(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = undamaged.Close()
	step := 1 // through the first entry, then in strides
	for at := 0; at < whole; at += step {
		if at > 1<<10 {
			step = 211
		}
		damaged := bytes.Clone(content)
		damaged[at] ^= 0x10
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := OpenArchive(path)
		if err != nil {
			continue
		}
		same := a.ArchiveInfo == undamaged.ArchiveInfo // headers hold irrelevant times and owners
		for name, entry := range a.at {
			got, want := make([]byte, entry.Size()), make([]byte, entry.Size())
			_, _ = entry.ReadAt(got, 0)
			_, offset, _ := entry.Outer()
			copy(want, content[offset:])
			same = same && bytes.Equal(got, want) && name != ""
		}
		if err := a.Verify(t.Context(), nil); err == nil && !same {
			t.Errorf("a flipped bit at %d was not noticed", at)
		}
		_ = a.Close()
	}
}

func TestFailedArchiveLeavesNothingBehind(t *testing.T) {
	s := filled(t)
	gone := errors.New("the client is gone")
	if _, err := s.WriteArchive(t.Context(), failingWriter{gone}, nil); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.WriteArchive(ctx, new(bytes.Buffer), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir(), archiveDir)); !os.IsNotExist(err) {
		t.Errorf("the copy is still there: %v", err)
	}
	archived(t, s)
}

func TestSecondArchiveAtOnceIsRefused(t *testing.T) {
	s := filled(t)
	_, err := s.WriteArchive(t.Context(), new(bytes.Buffer), func() ([]ArchivedFile, error) {
		_, err := s.WriteArchive(t.Context(), new(bytes.Buffer), nil)
		return nil, err
	})
	wantError(t, err, driver.ErrConflict, "another backup")
}

func TestCopyOfKilledArchiveIsRemovedAtOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	mustClose(t, mustOpen(t, dir, diskOptions()))
	stale := filepath.Join(dir, archiveDir)
	if err := os.MkdirAll(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, dir, diskOptions()))
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the copy is still there: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
