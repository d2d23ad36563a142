package revocation

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func openFile(t testing.TB, path string) *File {
	t.Helper()
	f, err := OpenFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func mustRevoke(t testing.TB, f *File, r Revocation) {
	t.Helper()
	if err := f.Revoke(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

var (
	revokedAt  = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	revokedEnd = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

func TestRevocationFileSurvivesRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revoked")
	f := openFile(t, path)
	want := []Revocation{
		{Token: numbered(1), At: revokedAt},
		{Token: numbered(2), At: revokedAt, Until: revokedEnd},
		{Tenant: strings.Repeat("a", macaroon.MaxTenantBytes), At: revokedAt, Until: revokedEnd},
	}
	for _, r := range want {
		mustRevoke(t, f, r)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 4*recordBytes {
		t.Errorf("%v, %v", info, err)
	}
	_, err := OpenFile(t.Context(), path)
	wantCode(t, "opened twice", err, driver.ErrConflict)
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "revoke after close", f.Revoke(t.Context(), want[0]), driver.ErrClosed)
	wantCode(t, "compact after close", f.Compact(t.Context()), driver.ErrClosed)

	again := openFile(t, path)
	if got := slices.Collect(again.All()); !slices.Equal(got, want) || again.Len() != 3 {
		t.Errorf("%v\nwant %v", got, want)
	}
	for token, revoked := range map[capability.TokenID]bool{numbered(1): true, numbered(2): true, numbered(3): false} {
		if since, got, err := again.Revoked(t.Context(), token, ""); got != revoked || err != nil || revoked && !since.Equal(revokedAt) {
			t.Errorf("%s: revoked %t since %v, %v", token, got, since, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := again.Revoke(ctx, Revocation{Token: numbered(9), At: revokedAt}); !errors.Is(err, context.Canceled) || again.Len() != 3 {
		t.Errorf("cancelled: %v", err)
	}
	if err := again.Compact(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := OpenFile(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wantCode(t, "a bad revocation", again.Revoke(t.Context(), Revocation{}), driver.ErrInvalid)
}

func TestRevocationFileHasDocumentedFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revoked")
	f := openFile(t, path)
	mustRevoke(t, f, Revocation{Token: capability.TokenID{}, Tenant: "acme", At: revokedAt})
	id, err := capability.ParseTokenID("01KE0000000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	mustRevoke(t, f, Revocation{Token: id, At: revokedAt, Until: revokedAt.Add(time.Second)})
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "65b01330 mailbox revocations 1\n" +
		"7b430726 tenant acme 1767323045678 0\n" +
		"b9d8c5b3 token 01KE0000000000000000000000 1767323045678 1767323046678\n"
	var got strings.Builder
	for line := range strings.Lines(string(content)) {
		if len(line) != 128 {
			t.Errorf("%q has %d bytes", line, len(line))
		}
		got.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
}

func TestRevocationFileIsCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "revoked")
		f := openFile(t, path)
		size := func() int64 {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			return info.Size() / recordBytes
		}
		largest := int64(0)
		for i := range 500 {
			mustRevoke(t, f, Revocation{Token: numbered(i % 10), At: time.Now()})
			largest = max(largest, size())
		}
		if largest > 70 || f.Len() != 10 {
			t.Errorf("10 tokens revoked again and again took %d records", largest)
		}
		mustRevoke(t, f, Revocation{Token: numbered(77), At: time.Now(), Until: time.Now().Add(time.Hour)})
		time.Sleep(26 * time.Hour)
		if err := f.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := size(); n != 11 || f.Len() != 10 {
			t.Errorf("%d records after compacting, want the head and 10", n)
		}
		mustRevoke(t, f, Revocation{Token: numbered(78), At: time.Now()})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if again := openFile(t, path); again.Len() != 11 {
			t.Errorf("%d revocations after a restart, want 11", again.Len())
		}
	})
}

func TestWastefulFileIsCompactedWhenOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "revoked")
	content := appendHead(nil)
	for i := range 200 {
		content = appendRecord(content, &Revocation{Token: numbered(i), At: revokedAt, Until: revokedAt})
	}
	content = appendRecord(content, &Revocation{Token: numbered(1000), At: revokedAt})
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	if info, err := os.Stat(path); err != nil || info.Size() != 2*recordBytes || f.Len() != 1 {
		t.Errorf("%v, %v, %d revocations", info.Size(), err, f.Len())
	}
}

// fileOfThree returns the content of a file with three revocations.
func fileOfThree() []byte {
	content := appendHead(nil)
	for i := range 3 {
		content = appendRecord(content, &Revocation{Token: numbered(i), At: revokedAt})
	}
	return content
}

// loads opens a file with this content and returns how many revocations it has.
func loads(t testing.TB, content []byte) (int, error) {
	t.Helper()
	d := newCrashDisk()
	d.put("revoked", content)
	f, err := openRevocations(d, "revoked")
	if err != nil {
		return 0, err
	}
	return f.Len(), nil
}

func TestEveryFlippedBitInTheFileIsFound(t *testing.T) {
	content := fileOfThree()
	if n, err := loads(t, content); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for bit := range 8 * len(content) {
		damaged := bytes.Clone(content)
		damaged[bit/8] ^= 1 << (bit % 8)
		if n, err := loads(t, damaged); !errors.Is(err, driver.ErrIntegrity) {
			t.Errorf("bit %d: %d revocations, %v, want ErrIntegrity", bit, n, err)
		}
	}
	for name, damaged := range map[string][]byte{
		"empty":               {},
		"another kind":        bytes.Replace(content, []byte("token"), []byte("toker"), 1),
		"records swapped":     slices.Concat(content[recordBytes:2*recordBytes], content[:recordBytes], content[2*recordBytes:]),
		"zeros in the middle": slices.Concat(content[:2*recordBytes], make([]byte, recordBytes), content[3*recordBytes:]),
		"zeros before text":   slices.Concat(content[:3*recordBytes], make([]byte, 10), content[3*recordBytes+10:]),
		"garbage behind":      slices.Concat(content, bytes.Repeat([]byte{'x'}, recordBytes)),
		"no head":             content[recordBytes:],
		"zeros":               make([]byte, 2*recordBytes),
	} {
		if n, err := loads(t, damaged); !errors.Is(err, driver.ErrIntegrity) {
			t.Errorf("%s: %d revocations, %v, want ErrIntegrity", name, n, err)
		}
	}
}

func TestIncompleteRecordsAreRemovedOnOpen(t *testing.T) {
	content := fileOfThree()
	for cut := recordBytes; cut <= len(content); cut++ {
		whole := cut/recordBytes - 1
		if n, err := loads(t, content[:cut]); n != whole || err != nil {
			t.Errorf("cut after %d bytes: %d revocations, %v, want %d", cut, n, err, whole)
		}
		if cut == len(content) {
			continue
		}
		for _, zeros := range []int{1, recordBytes - cut%recordBytes, recordBytes, 3000} {
			grown := slices.Concat(content[:cut], make([]byte, zeros))
			if n, err := loads(t, grown); n != whole || err != nil {
				t.Errorf("cut after %d bytes and %d zeros: %d revocations, %v, want %d", cut, zeros, n, err, whole)
			}
		}
	}
}

func TestUnreadableFileIsAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenFile(t.Context(), filepath.Join(dir, "missing", "revoked"))
	wantCode(t, "no directory", err, driver.ErrUnavailable)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not say why", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "revoked"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = OpenFile(t.Context(), filepath.Join(dir, "revoked"))
	wantCode(t, "a directory", err, driver.ErrUnavailable)
}

func FuzzRevocationFile(f *testing.F) {
	f.Add(fileOfThree())
	f.Add(fileOfThree()[:200])
	f.Add(appendRecord(appendHead(nil), &Revocation{Tenant: "acme", At: revokedAt, Until: revokedEnd}))
	f.Fuzz(func(t *testing.T, content []byte) {
		d := newCrashDisk()
		d.put("revoked", content)
		file, err := openRevocations(d, "revoked")
		if err != nil {
			if !errors.Is(err, driver.ErrIntegrity) {
				t.Fatal(err)
			}
			return
		}
		n := file.Len()
		mustRevoke(t, file, Revocation{Token: numbered(7), At: revokedAt})
		again, err := openRevocations(d, "revoked")
		if err != nil || again.Len() < n {
			t.Fatalf("%d revocations became %v, %v", n, again, err)
		}
	})
}
