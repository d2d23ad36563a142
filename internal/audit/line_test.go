package audit_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/internal/audit"
)

// numbers are those of records, in their order.
func numbers(records []audit.Record) (n []int) {
	for _, r := range records {
		n = append(n, r.Count)
	}
	return n
}

func TestOlderHalfOfEarlierVersionIsKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, audit.FileName)
	write := func(path string, from, to int) {
		t.Helper()
		made := t.TempDir()
		l := open(t, made, 1<<20)
		for n := from; n <= to; n++ {
			if err := l.Append(record(n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(filepath.Join(made, audit.FileName), path); err != nil {
			t.Fatal(err)
		}
	}
	write(path+".1", 1, 3)
	write(path, 4, 5)
	for round := range 2 {
		l := open(t, dir, 1<<20)
		if got := numbers(read(t, l, 0)); !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
			t.Errorf("round %d: the log has %v", round, got)
		}
		_ = l.Close()
		if _, err := os.Stat(path + ".1"); err == nil {
			t.Error("the older half is still there")
		}
		write(path+".1", 1, 3) // as if a crash had come before it was removed
	}
}

func TestMergeKeepsEachRecordOnceInOrder(t *testing.T) {
	all := func(from, to int) (n []int) {
		for ; from <= to; from++ {
			n = append(n, from)
		}
		return n
	}
	for name, test := range map[string]struct{ backup, target, want []int }{
		"target goes on":              {all(1, 5), all(1, 9), all(1, 9)},
		"target has dropped some":     {all(1, 5), all(4, 9), all(1, 9)},
		"target has dropped all":      {all(1, 5), all(7, 9), append(all(1, 5), 7, 8, 9)},
		"target is older":             {all(1, 9), all(1, 5), all(1, 9)},
		"target has nothing":          {all(1, 5), nil, all(1, 5)},
		"backup has nothing":          {nil, all(1, 5), all(1, 5)},
		"another daemon":              {[]int{1, 3, 5}, []int{2, 4, 6}, all(1, 6)},
		"equal records":               {[]int{1, 2, 2, 3}, []int{2, 2, 2, 3}, []int{1, 2, 2, 2, 3}},
		"clock went back":             {[]int{8, 9, 1, 2}, []int{1, 2, 3}, []int{8, 9, 1, 2, 3}},
		"clock went back in target":   {[]int{3, 4}, []int{5, 3}, []int{5, 3, 4}},
		"order differs":               {[]int{1, 2, 1, 3}, []int{2, 1}, []int{2, 1, 1, 3}},
		"same, after a first restore": {all(1, 5), append(all(1, 5), 9), append(all(1, 5), 9)},
	} {
		dir, other := t.TempDir(), t.TempDir()
		for into, list := range map[string][]int{dir: test.backup, other: test.target} {
			l := open(t, into, 1<<20)
			for _, n := range list {
				if err := l.Append(record(n)); err != nil {
					t.Fatal(err)
				}
			}
			_ = l.Close()
		}
		for range 2 { // the second changes nothing
			if err := audit.Merge(dir, other, 1<<20); err != nil {
				t.Fatal(err)
			}
			records, damaged, err := audit.Read(dir)
			if got := numbers(records); !slices.Equal(got, test.want) || damaged != 0 || err != nil {
				t.Errorf("%s: merged %v, %d damaged, %v; want %v", name, got, damaged, err, test.want)
			}
		}
	}
}

func TestMergeBeyondLimitKeepsAllOfTarget(t *testing.T) {
	const limit = 8 << 10
	dir, other := t.TempDir(), t.TempDir()
	fill := func(dir string, from int) []int {
		l := open(t, dir, limit)
		for n := from; l.Stats().Used < limit*3/4; n++ {
			if err := l.Append(record(n)); err != nil {
				t.Fatal(err)
			}
		}
		return numbers(read(t, l, 0))
	}
	fill(dir, 100)
	target := fill(other, 400)
	if err := audit.Merge(dir, other, limit); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, limit)
	got := numbers(read(t, l, 0))
	if used := l.Stats().Used; used > limit || used < limit*7/8 {
		t.Errorf("%d bytes after the merge, limit %d", used, limit)
	}
	if from := len(got) - len(target); from < 1 || !slices.Equal(got[from:], target) {
		t.Errorf("merged %v, want %v at the end", got, target)
	}
	if !slices.IsSorted(got) {
		t.Errorf("merged %v", got)
	}
}

func TestDamagedLinesOfTargetSurviveMerge(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for into, from := range map[string]int{dir: 1, other: 3} {
		l := open(t, into, 1<<20)
		for n := from; n <= from+3; n++ {
			if err := l.Append(record(n)); err != nil {
				t.Fatal(err)
			}
		}
		_ = l.Close()
	}
	path := filepath.Join(other, audit.FileName)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[20] ^= 1 // in 3, which the backup has undamaged
	if err := os.WriteFile(path, append(content, "torn"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := audit.Merge(dir, other, 1<<20); err != nil {
		t.Fatal(err)
	}
	if got := numbers(read(t, open(t, dir, 1<<20), 1)); !slices.Equal(got, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("merged %v", got)
	}
}
