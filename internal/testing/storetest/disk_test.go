package storetest

import (
	"bytes"
	"errors"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func create(t *testing.T, fs vfs.FS, name string, content []byte, sync bool) vfs.File {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(content)); err != nil { // Write may change it
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func syncDirOf(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	d, err := fs.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// Synced data is in every image; other data is in some and not in others, sector by sector and
// name by name.
func TestImagesKeepSyncedDataAndVaryTheRest(t *testing.T) {
	disk := NewDisk()
	fs := disk.FS()
	old, unsynced := bytes.Repeat([]byte("a"), 2048), bytes.Repeat([]byte("b"), 8*sectorBytes)
	log := create(t, fs, "/1.log", old, true)
	create(t, fs, "/gone.log", old, true)
	syncDirOf(t, fs, "/")
	if _, err := log.Write(bytes.Clone(unsynced)); err != nil {
		t.Fatal(err)
	}
	create(t, fs, "/2.log", old, true) // its name is not durable
	if err := fs.Remove("/gone.log"); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		image := disk.Image(rng)
		content, ok := read(image, "/1.log")
		if !ok || !bytes.HasPrefix(content, old) {
			t.Fatal("synced data is missing")
		}
		rest := content[len(old):]
		seen["all"] = seen["all"] || bytes.Equal(rest, unsynced)
		seen["nothing"] = seen["nothing"] || len(rest) == 0
		seen["torn"] = seen["torn"] || len(rest) == len(unsynced) && bytes.Contains(rest, make([]byte, sectorBytes)) && bytes.Contains(rest, unsynced[:sectorBytes])
		_, kept := read(image, "/2.log")
		seen["name kept"], seen["name lost"] = seen["name kept"] || kept, seen["name lost"] || !kept
		_, back := read(image, "/gone.log")
		seen["removal lost"], seen["removal kept"] = seen["removal lost"] || back, seen["removal kept"] || !back
	}
	for _, what := range []string{"all", "nothing", "torn", "name kept", "name lost", "removal lost", "removal kept"} {
		if !seen[what] {
			t.Errorf("never seen: %s", what)
		}
	}
}

func TestTheHookSeesOperationsAndCanFailThem(t *testing.T) {
	disk := NewDisk()
	fs := disk.FS()
	var kinds []Kind
	broken := errors.New("broken")
	disk.Before(func(op Operation) error {
		kinds = append(kinds, op.Kind)
		if op.Kind == Rename {
			return broken
		}
		return nil
	})
	f := create(t, fs, "/a", []byte("x"), true)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.Rename("/a", "/b"); !errors.Is(err, broken) {
		t.Errorf("Rename: %v", err)
	}
	if _, ok := read(disk.Mem(), "/a"); !ok {
		t.Error("the failed operation was done")
	}
	syncDirOf(t, fs, "/")
	want := []Kind{Create, Write, Sync, Rename, SyncDir}
	if len(kinds) != len(want) {
		t.Fatalf("saw %v, want %v", kinds, want)
	}
	for i := range want {
		if kinds[i] != want[i] {
			t.Errorf("saw %v, want %v", kinds, want)
		}
	}
}

func TestFlipChangesOneBit(t *testing.T) {
	mem := vfs.NewMem()
	before := make([]byte, 100)
	create(t, mem, "/a", before, true)
	create(t, mem, "/empty", nil, true)
	rng := rand.New(rand.NewPCG(1, 1))
	offset, ok := Flip(mem, "/a", rng)
	after, _ := read(mem, "/a")
	if !ok || bits.OnesCount8(after[offset]) != 1 {
		t.Errorf("byte %d is %b", offset, after[offset])
	}
	after[offset] = 0
	if !bytes.Equal(before, after) {
		t.Error("more was changed")
	}
	if _, ok := Flip(mem, "/empty", rng); ok {
		t.Error("flipped a bit of an empty file")
	}
	if files := Files(mem); len(files) != 2 || files[0] != "/a" || files[1] != "/empty" {
		t.Errorf("Files: %v", files)
	}
}

func TestSaboteursLie(t *testing.T) {
	disk := NewDisk()
	create(t, IgnoreSyncs(disk.FS(), Logs), "/1.log", []byte("x"), true)
	create(t, IgnoreSyncs(disk.FS(), Logs), "/table", []byte("x"), true)
	syncDirOf(t, IgnoreSyncs(disk.FS(), Directories), "/")
	if files := Files(disk.Mem().CrashClone(vfs.CrashCloneCfg{})); len(files) != 0 {
		t.Errorf("the directory was synced: %v", files)
	}
	syncDirOf(t, disk.FS(), "/")
	image := disk.Mem().CrashClone(vfs.CrashCloneCfg{})
	if content, _ := read(image, "/1.log"); len(content) != 0 {
		t.Error("the log was synced")
	}
	if content, _ := read(image, "/table"); len(content) != 1 {
		t.Error("the table was not synced")
	}
	losing := LoseSeals(disk.FS())
	create(t, losing, "/seal-MANIFEST-000001.tmp", []byte("x"), true)
	if err := losing.Rename("/seal-MANIFEST-000001.tmp", "/seal-MANIFEST-000001"); err != nil {
		t.Fatal(err)
	}
	if files := Files(disk.Mem()); len(files) != 2 {
		t.Errorf("the seal is there: %v", files)
	}
}
