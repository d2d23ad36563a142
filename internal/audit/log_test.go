package audit_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/audit"
)

// childVariable makes the test binary a process that appends until it is killed.
const childVariable = "MAILBOX_TEST_AUDIT_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	l, err := audit.Open(dir, 16<<10) // so small that it is trimmed again and again
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 1; ; i++ {
		if err := l.Append(record(i)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func record(n int) audit.Record {
	return audit.Record{At: time.Unix(int64(n), 0).UTC(), Operation: "purge", Queue: "orders", Count: n, Result: "ok"}
}

func open(t *testing.T, dir string, limit int64) *audit.Log {
	t.Helper()
	l, err := audit.Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func read(t *testing.T, l *audit.Log, wantDamaged int) []audit.Record {
	t.Helper()
	records, damaged, err := l.Records(t.Context())
	if err != nil || damaged != wantDamaged {
		t.Fatalf("%d damaged lines, %v; want %d", damaged, err, wantDamaged)
	}
	return records
}

func TestConfirmedRecordsSurviveKill(t *testing.T) {
	for round := range 5 {
		dir := t.TempDir()
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		confirmed := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if confirmed, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatalf("the process said %q", lines.Text())
			}
			if confirmed == 40*(round+1) {
				_ = child.Process.Kill() // what it says after that was confirmed too
			}
		}
		_ = child.Wait()
		records := read(t, open(t, dir, 16<<10), 0)
		if len(records) == 0 || records[len(records)-1].Count < confirmed {
			t.Fatalf("round %d: %d were confirmed, and the log has %d records", round, confirmed, len(records))
		}
		for i, r := range records {
			if want := records[0].Count + i; r.Count != want {
				t.Fatalf("round %d: record %d is missing", round, want)
			}
		}
	}
}

func TestTornRecordIsCutOff(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 1<<20)
	for n := 1; n <= 2; n++ {
		if err := l.Append(record(n)); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Close()
	path := filepath.Join(dir, audit.FileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, torn := range []string{"0", string(whole[:len(whole)/3]), "\x00\x00\x00"} {
		if err := os.WriteFile(path, []byte(string(whole)+torn), 0o600); err != nil {
			t.Fatal(err)
		}
		l = open(t, dir, 1<<20)
		if got := read(t, l, 0); len(got) != 2 {
			t.Fatalf("after %q there are %d records, want 2", torn, len(got))
		}
		if err := l.Append(record(3)); err != nil {
			t.Fatal(err)
		}
		if got := read(t, l, 0); len(got) != 3 || got[2] != record(3) {
			t.Fatalf("after %q and one more there are %v", torn, got)
		}
		_ = l.Close()
	}
	whole[20] ^= 1
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(t, open(t, dir, 1<<20), 1); len(got) != 1 {
		t.Errorf("a damaged line left %d records, want 1", len(got))
	}
}

func TestLogNeverExceedsItsLimit(t *testing.T) {
	const limit = 4 << 10
	dir := t.TempDir()
	l := open(t, dir, limit)
	for n := 1; n <= 200; n++ {
		if err := l.Append(record(n)); err != nil {
			t.Fatal(err)
		}
		if used := l.Stats().Used; used > limit {
			t.Fatalf("%d bytes after %d records, limit %d", used, n, limit)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files are %s, %v", strings.Join(files, ", "), err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%s has mode %v, %v", files[0], info.Mode(), err)
	}
	if used := l.Stats().Used; info.Size() != used {
		t.Errorf("%d bytes on disk, %d by its own count", info.Size(), used)
	}
	if got := read(t, l, 0); got[len(got)-1].Count != 200 {
		t.Errorf("the latest record is %d", got[len(got)-1].Count)
	}
	memory := audit.InMemory()
	for n := range 10_000 {
		_ = memory.Append(record(n))
	}
	if got := read(t, memory, 0); len(got) > 4096 || got[len(got)-1].Count != 9999 {
		t.Errorf("%d records in memory, the latest is %d", len(got), got[len(got)-1].Count)
	}
}
