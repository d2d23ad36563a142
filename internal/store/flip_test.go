package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// damagedStore is a store to flip bits in: an image of its disk and everything that was
// committed to it, in order.
type damagedStore struct {
	options func(vfs.FS) *Options
	image   *vfs.MemFS
	want    map[string]string
	last    string // the key of the last commit
}

// newDamagedStore fills a store with tables on several levels, a manifest of several edits, and
// a log of commits both smaller and larger than the engine's blocks, and takes the image of the
// disk that end leaves.
func newDamagedStore(t *testing.T, configure func(*Options), end func(*Store) error) *damagedStore {
	const seed = 1
	options := func(fs vfs.FS) *Options {
		o := memOptions(fs)
		o.MemTableBytes = 8 << 20 // the last part stays in the log
		o.maxManifestBytes = 1 << 20
		configure(o)
		return o
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	disk := storetest.NewDisk()
	s := mustOpen(t, testDir, options(disk.FS()))
	r := &damagedStore{options: options, want: make(map[string]string)}
	commit := func(n, size int) {
		b := s.NewBatch()
		for range n {
			key := numbered("k", rng.IntN(100000))
			value := string(noise(rng, rng.IntN(size+1)))
			b.Set([]byte(key), []byte(value))
			r.want[key] = value
			r.last = key
		}
		if err := s.Commit(b, true); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		commit(40, 300)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		if i > 1 {
			continue
		}
		// Here and not in the background, so that the image is mostly the same.
		if err := s.db.Compact(t.Context(), []byte("k"), []byte("l"), false); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if i%4 == 0 {
			commit(12, 8000)
		}
		commit(1, 600)
	}
	if err := end(s); err != nil {
		t.Fatal(err)
	}
	r.image = disk.Mem().CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// flipClass returns the class of a file, for the statistics and for a balanced choice.
func flipClass(name string) string {
	base := path.Base(name)
	switch {
	case strings.HasPrefix(base, sealPrefix):
		return "seal"
	case base == formatFile:
		return "format"
	case strings.HasPrefix(base, "OPTIONS-"):
		return "options"
	case classOf(base) == classLog:
		return "log"
	case classOf(base) == classManifest:
		return "manifest"
	case classOf(base) == classTable:
		return "table"
	}
	return "other" // empty: locks and markers
}

const (
	noticed  = "noticed"
	harmless = "harmless"
)

// outcome opens the image with one flipped bit and returns whether that was detected or
// harmless. tolerate are the keys that may be gone.
func (r *damagedStore) outcome(t *testing.T, image *vfs.MemFS, tolerate map[string]bool) (string, error) {
	before := contents(t, image)
	s, err := Open(t.Context(), testDir, r.options(image))
	if err != nil {
		if _, ok := errors.AsType[*driver.Error](err); !ok {
			return "", fmt.Errorf("%T is not an *driver.Error: %w", err, err)
		}
		if strings.Contains(err.Error(), "nothing was changed") && !maps.Equal(before, contents(t, image)) {
			return "", fmt.Errorf("the files were changed after all: %w", err)
		}
		return noticed, nil
	}
	result := harmless
	seen := make(map[string]bool)
	damaged := 0
	for key, value := range r.want {
		got, err := s.Get([]byte(key), nil)
		switch {
		case errors.Is(err, driver.ErrIntegrity):
			// Every read of a damaged block is slow, because the engine searches for the bit.
			if damaged++; damaged == 3 {
				return noticed, s.Close()
			}
			result = noticed
		case tolerate[key]:
		case err != nil:
			return "", errors.Join(fmt.Errorf("%s: %w", key, err), s.Close())
		case string(got) != value:
			return "", errors.Join(fmt.Errorf("%s has a wrong value", key), s.Close())
		}
	}
	it := s.Iterate(nil, nil)
	for key := range it.All() {
		if _, ok := r.want[string(key)]; !ok {
			return "", errors.Join(fmt.Errorf("%q was never written", key), it.Close(), s.Close())
		}
		seen[string(key)] = true
	}
	switch err := it.Close(); {
	case errors.Is(err, driver.ErrIntegrity):
		result = noticed
	case err != nil:
		return "", errors.Join(err, s.Close())
	case len(seen)+len(tolerate) < len(r.want):
		return "", errors.Join(fmt.Errorf("%d keys of %d", len(seen), len(r.want)), s.Close())
	}
	return result, s.Close()
}

// contents returns the files of an image, without those that Open creates or empties.
func contents(t *testing.T, image *vfs.MemFS) map[string]string {
	files := make(map[string]string)
	for _, name := range storetest.Files(image) {
		if path.Base(name) != lockFile {
			files[name] = string(readFile(t, image, name))
		}
	}
	return files
}

// flip flips bits in files of all classes, or of one, and counts the outcomes.
func (r *damagedStore) flip(t *testing.T, flips int, only string, tolerate map[string]bool) (counts map[string]int, err error) {
	rng := rand.New(rand.NewPCG(1, 2))
	byClass := make(map[string][]string)
	for _, name := range storetest.Files(r.image) {
		class := flipClass(name)
		if class != "other" && (only == "" || only == class) {
			byClass[class] = append(byClass[class], name)
		}
	}
	classes := slices.Sorted(maps.Keys(byClass))
	counts = make(map[string]int)
	for i := range flips {
		class := classes[i%len(classes)]
		name := byClass[class][rng.IntN(len(byClass[class]))]
		image := r.image.CrashClone(vfs.CrashCloneCfg{})
		offset, ok := storetest.Flip(image, name, rng)
		if !ok {
			continue
		}
		result, err := r.outcome(t, image, tolerate)
		if err != nil {
			return counts, fmt.Errorf("a bit of %s at %d, flip %d, went unnoticed: %w", name, offset, i, err)
		}
		counts[class+" "+result]++
	}
	return counts, nil
}

func reportFlips(t *testing.T, counts map[string]int) {
	t.Helper()
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%-20s %d", outcome, counts[outcome])
	}
}

func TestNoFlippedBitGoesUnnoticed(t *testing.T) {
	volume.InFull(t)
	states := map[string]func(*Store) error{
		"closed":  (*Store).Close,
		"idle":    (*Store).sealLog,
		"crashed": func(*Store) error { return nil },
	}
	for name, end := range states {
		t.Run(name, func(t *testing.T) {
			r := newDamagedStore(t, func(*Options) {}, end)
			// After a crash, damage in the last commit looks like a commit that never reached
			// the disk. The watermark in it covers all commits before it.
			tolerate := make(map[string]bool)
			if name == "crashed" {
				tolerate[r.last] = true
			}
			counts, err := r.flip(t, scaled(t, 90), "", tolerate)
			reportFlips(t, counts)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Without seals and watermarks a store loses data to single bits without detecting it. This
// shows that the tests above can fail.
func TestFlippedBitsGoUnnoticedWithoutSealsAndWatermarks(t *testing.T) {
	for class, forget := range map[string]func(*Options){
		"manifest": func(o *Options) { o.forgetSeals = true },
		"log":      func(o *Options) { o.forgetWatermarks = true },
	} {
		t.Run(class, func(t *testing.T) {
			for range 5 { // in some images, a late compaction makes every flipped bit an error
				r := newDamagedStore(t, forget, (*Store).sealLog)
				if _, err := r.flip(t, 100, class, nil); err != nil {
					t.Log(err)
					return
				}
			}
			t.Fatal("not caught")
		})
	}
}
