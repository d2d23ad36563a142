package storetest

import (
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const sectorBytes = 512

// mixImages builds a crash image from the disk as it was last synced and the current disk.
// vfs.CrashClone loses data in units of 4 KiB and always undoes unsynced removals; mixImages
// uses sectors of 512 bytes, and removals may persist.
func mixImages(synced, live *vfs.MemFS, rng *rand.Rand) *vfs.MemFS {
	image := vfs.NewCrashableMem()
	mixDir(image, synced, live, "/", rng)
	return image
}

// sameDirs reports whether two file systems have the same directories. If a renamed directory
// is not synced yet, mixImages cannot match its files.
func sameDirs(a, b *vfs.MemFS, dir string) bool {
	names := slices.Concat(list(a, dir), list(b, dir))
	for _, name := range names {
		full := path.Join(dir, name)
		inA, inB := isDir(a, full), isDir(b, full)
		if inA != inB || inA && !sameDirs(a, b, full) {
			return false
		}
	}
	return true
}

func mixDir(image, synced, live *vfs.MemFS, dir string, rng *rand.Rand) {
	before, now := list(synced, dir), list(live, dir)
	names := slices.Concat(before, now)
	slices.Sort(names)
	// File systems keep the order of changes in a directory: a removal does not persist if an
	// earlier creation did not.
	removalsLast := rng.IntN(2) == 0
	for _, name := range slices.Compact(names) {
		created, removed := !slices.Contains(before, name), !slices.Contains(now, name)
		if created && !removalsLast && rng.IntN(2) == 0 || removed && removalsLast && rng.IntN(2) == 0 {
			continue
		}
		mixEntry(image, synced, live, path.Join(dir, name), rng)
	}
	must(syncDirectory(image, dir))
}

func mixEntry(image, synced, live *vfs.MemFS, name string, rng *rand.Rand) {
	if isDir(synced, name) || isDir(live, name) {
		must(image.MkdirAll(name, 0o755))
		mixDir(image, synced, live, name, rng)
		return
	}
	old, hasOld := read(synced, name)
	seen, hasSeen := read(live, name)
	content := old
	switch {
	case hasOld && hasSeen && writtenInPlace(name):
		content = mixSectors(old, seen, rng)
	case !hasOld || hasSeen && rng.IntN(2) == 0:
		content = seen
	}
	f, err := image.Create(name, vfs.WriteCategoryUnspecified)
	must(err)
	_, err = f.Write(content)
	must(err)
	must(f.Sync())
	must(f.Close())
}

// writtenInPlace reports whether a file grows, or is overwritten, under its name. Other files
// appear complete.
func writtenInPlace(name string) bool {
	base := path.Base(name)
	return strings.HasSuffix(base, ".log") || strings.HasSuffix(base, ".sst") || strings.HasPrefix(base, "MANIFEST-")
}

// mixSectors keeps a random part of the sectors that were written since the last sync. The file
// is as long as the last kept sector requires.
func mixSectors(synced, seen []byte, rng *rand.Rand) []byte {
	mixed := slices.Clone(synced)
	percent := rng.IntN(101)
	for i := 0; i < len(seen); i += sectorBytes {
		sector := seen[i:min(i+sectorBytes, len(seen))]
		if rng.IntN(100) >= percent {
			continue
		}
		if need := i + len(sector); need > len(mixed) {
			mixed = append(mixed, make([]byte, need-len(mixed))...)
		}
		copy(mixed[i:], sector)
	}
	return mixed
}

func list(fs *vfs.MemFS, dir string) []string {
	names, err := fs.List(dir)
	if err != nil {
		return nil
	}
	return names
}

func isDir(fs *vfs.MemFS, name string) bool {
	info, err := fs.Stat(name)
	return err == nil && info.IsDir()
}

func read(fs *vfs.MemFS, name string) ([]byte, bool) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	must(err)
	return data, true
}

func syncDirectory(fs *vfs.MemFS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// must stops the test program. A file system in memory does not fail, so an error is a bug in
// this package.
func must(err error) {
	if err != nil {
		panic(err) // a file system in memory does not fail
	}
}

// Files returns the paths of all files of an image, in order.
func Files(image *vfs.MemFS) []string {
	var files []string
	var walk func(dir string)
	walk = func(dir string) {
		names := list(image, dir)
		slices.Sort(names)
		for _, name := range names {
			if full := path.Join(dir, name); isDir(image, full) {
				walk(full)
			} else {
				files = append(files, full)
			}
		}
	}
	walk("/")
	return files
}

// Flip changes one random bit of the file and returns its offset. It returns false for an empty
// file.
func Flip(image *vfs.MemFS, name string, rng *rand.Rand) (offset int, ok bool) {
	data, err := image.UnsafeGetFileDataBuffer(name)
	if err != nil || len(data) == 0 {
		return 0, false
	}
	offset = rng.IntN(len(data))
	data[offset] ^= 1 << rng.IntN(8)
	return offset, true
}
