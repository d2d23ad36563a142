package diskbox

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// fileDamages are the ways in which a whole file is damaged. They return false if the file
// cannot be damaged in that way.
var fileDamages = map[string]func(mem *vfs.MemFS, file string, rng *rand.Rand) bool{
	"removed": func(mem *vfs.MemFS, file string, _ *rand.Rand) bool { return mem.Remove(file) == nil },
	"emptied": func(mem *vfs.MemFS, file string, _ *rand.Rand) bool { return cutFile(mem, file, 0) },
	"cut": func(mem *vfs.MemFS, file string, rng *rand.Rand) bool {
		data, err := mem.UnsafeGetFileDataBuffer(file)
		return err == nil && len(data) > 1 && cutFile(mem, file, 1+rng.IntN(len(data)-1))
	},
	"zeroed": func(mem *vfs.MemFS, file string, rng *rand.Rand) bool { // a lost sector
		const sector = 512
		data, err := mem.UnsafeGetFileDataBuffer(file)
		if err != nil || len(data) == 0 {
			return false
		}
		from := rng.IntN(len(data)) / sector * sector
		clear(data[from:min(from+sector, len(data))])
		return true
	},
}

// cutFile leaves the first bytes of a file.
func cutFile(mem *vfs.MemFS, file string, left int) bool {
	data, err := mem.UnsafeGetFileDataBuffer(file)
	if err != nil || len(data) <= left {
		return false
	}
	data = slices.Clone(data[:left])
	f, err := mem.Create(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		return false
	}
	_, err = f.Write(data)
	return err == nil && f.Sync() == nil && f.Close() == nil
}

// damageFiles damages the files in turn, each in every way, and counts the outcomes.
func (r *damagedDisk) damageFiles(cases int, seed uint64, skip func(file string) bool) (counts map[string]int, err error) {
	rng := rand.New(rand.NewPCG(seed, 3))
	files := slices.Sorted(maps.Keys(fileContents(r.image.mem)))
	ways := slices.Sorted(maps.Keys(fileDamages))
	counts = make(map[string]int)
	for n := range cases {
		file, way := files[n%len(files)], ways[n/len(files)%len(ways)]
		mem := r.image.mem.CrashClone(vfs.CrashCloneCfg{})
		if skip(file) || !fileDamages[way](mem, file, rng) {
			continue
		}
		result, err := r.outcome(mem, file)
		if err != nil {
			return counts, fmt.Errorf("seed %d, case %d, %s %s: %w", seed, n, file, way, err)
		}
		counts[fileClass(file)+" "+way+" "+result]++
	}
	return counts, nil
}

func TestNoDamagedFileLosesOrChangesAMessage(t *testing.T) {
	volume.Repeats(t)
	cases := max(volume.Of(240), crashImages(t)/10)
	for n, name := range slices.Sorted(maps.Keys(damagedDiskStates)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end, seed := damagedDiskStates[name], uint64(4*(n+1)) // one client
			var r *damagedDisk
			synctest.Test(t, func(t *testing.T) { r = newDamagedDisk(t, seed, end) })
			r.env.ctx = t.Context()
			last := ""
			if name == "crashed" { // its last log may be torn
				for _, file := range storetest.Files(r.image.mem) {
					if path.Ext(file) == ".log" {
						last = max(last, file)
					}
				}
			}
			counts, err := r.damageFiles((cases+len(damagedDiskStates)-1)/len(damagedDiskStates), seed,
				func(file string) bool { return file == last })
			total := 0
			for _, outcome := range slices.Sorted(maps.Keys(counts)) {
				t.Logf("%-40s %d", outcome, counts[outcome])
				total += counts[outcome]
			}
			t.Logf("%d cases", total)
			if err != nil {
				t.Error(err)
			}
		})
	}
}
