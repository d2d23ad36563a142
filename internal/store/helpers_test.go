package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

const testDir = "/data/mail"

// memOptions are options for a small and fast store in memory.
func memOptions(fs vfs.FS) *Options {
	return &Options{
		FS:               fs,
		MemTableBytes:    minMemTableBytes,
		CacheBytes:       1 << 20,
		ReserveBytes:     -1,
		BallastBytes:     -1,
		OnFail:           func(error) {},
		maxManifestBytes: 1, // rotate as often as possible
	}
}

func mustOpen(t testing.TB, dir string, o *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if len(s.misuse.found) > 0 {
		t.Errorf("the engine suspects misuse: %v", s.misuse.found)
	}
}

func put(t testing.TB, s *Store, key, value string) {
	t.Helper()
	b := s.NewBatch()
	b.Set([]byte(key), []byte(value))
	if err := s.Commit(b, true); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func wantValue(t testing.TB, s *Store, key, want string) {
	t.Helper()
	got, err := s.Get([]byte(key), nil)
	if err != nil || string(got) != want {
		t.Errorf("Get(%q) = %d bytes, %v; want %d bytes", key, len(got), err, len(want))
	}
}

func wantMissing(t testing.TB, s *Store, key string) {
	t.Helper()
	if got, err := s.Get([]byte(key), nil); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("Get(%q) = %d bytes, %v; want ErrNotFound", key, len(got), err)
	}
}

// wantError checks the code of err, and that its text contains texts.
func wantError(t testing.TB, err error, code driver.Code, texts ...string) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatalf("error is %v, want code %q", err, code)
	}
	if _, ok := errors.AsType[*driver.Error](err); !ok {
		t.Errorf("%T is not an *driver.Error", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not mention %q", err, text)
		}
	}
}

// engineFiles returns the paths of the engine's files whose name matches.
func engineFiles(t testing.TB, fs vfs.FS, match func(base string) bool) []string {
	t.Helper()
	dir := fs.PathJoin(testDir, engineDir)
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, name := range names {
		if match(name) {
			paths = append(paths, path.Join(dir, name))
		}
	}
	return paths
}

func isLog(base string) bool { return classOf(base) == classLog }

func readFile(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t testing.TB, fs vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// noise returns n bytes that compress badly.
func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// scaled returns n, a fifth of it under the race detector, or what the volume says.
func scaled(t testing.TB, n int) int {
	t.Helper()
	return volume.Count(t, volume.Part(n, 5), 100*n)
}

// stride is the step through many similar cases: without the race detector, which makes the
// engine slow, all of them are tested.
func stride() int { return volume.Stride(5) }

func numbered(prefix string, n int) string { return fmt.Sprintf("%s%08d", prefix, n) }

var exampleContext = context.Background()
