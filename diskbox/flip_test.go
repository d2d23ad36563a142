package diskbox

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A damagedDisk is a disk to flip bits in, with the models of its content.
type damagedDisk struct {
	env   *crashEnv
	image crashImage
}

// damagedDiskAge is how long the disk is off: everything on it is due, and no lease is left. A
// test cannot wait for that in virtual time, which stands still while the engine retries to
// read a damaged table.
const damagedDiskAge = 10 * time.Minute

// newDamagedDisk lets a client fill queues, through a restart, so that there are files of all
// kinds, and takes the image of the disk that end leaves.
func newDamagedDisk(t *testing.T, seed uint64, end func(*damagedDisk, *Backend) error) *damagedDisk {
	t.Helper()
	var budget atomic.Int64 // no images
	e := newCrashEnv(t.Context(), seed, &budget, &crashSummary{})
	e.kinds = []int{0, 1, 2, 4} // the kinds that time does not change
	e.prepare()
	r := &damagedDisk{env: e}
	for generation := range 2 {
		b, err := e.open(e.disk.FS(), &e.clock, func(err error) { t.Errorf("it failed: %v", err) })
		if err != nil {
			t.Fatal(err)
		}
		e.steps = 300
		if err := errors.Join(e.configure(b), e.load(b, generation)); err != nil {
			t.Fatal(err)
		}
		if generation == 1 {
			if err := end(r, b); err != nil {
				t.Fatal(err)
			}
			e.models.mu.Lock()
			now := e.clock
			now.base = now.uptime()
			r.image = crashImage{
				mem: e.disk.Mem().CrashClone(vfs.CrashCloneCfg{}), models: e.models.snapshotLocked(), at: time.Now(), clock: now,
			}
			e.models.mu.Unlock()
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// damagedDiskStates are the states that a disk can be left in.
var damagedDiskStates = map[string]func(*damagedDisk, *Backend) error{
	"closed": func(_ *damagedDisk, b *Backend) error { return b.Close() },
	"idle": func(*damagedDisk, *Backend) error {
		elapse(10 * time.Second)
		return nil
	},
	// Damage in the commit of the last sync before a crash looks like a commit that the crash
	// prevented, so the last send counts as not answered.
	"crashed": func(r *damagedDisk, b *Backend) error {
		model := r.env.models.queues[0]
		q, err := b.OpenQueue(r.env.ctx, model.name)
		if err != nil {
			return err
		}
		out := driver.Outgoing{Body: []byte("the last"), CorrelationID: fmt.Sprint(len(model.messages))}
		token := model.addLocked(out)
		r.env.models.begin(model, opSend, []int{token})
		_, err = q.Send(r.env.ctx, []driver.Outgoing{out})
		return err
	},
}

// fileClass is the name of a file without its number.
func fileClass(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, path.Base(name)), ".-")
}

const (
	flipRefused  = "refused"  // by Open
	flipNoticed  = "noticed"  // by an operation
	flipSurfaced = "surfaced" // as a dead letter with reason integrity
	flipHarmless = "harmless" // all messages are there
)

// outcome opens the image of a disk with a flipped bit and returns the outcome, or an error if
// the damage was not detected.
func (r *damagedDisk) outcome(mem *vfs.MemFS, file string) (string, error) {
	before := fileContents(mem)
	clock := r.image.clock
	clock.start = time.Now()
	clock.base += damagedDiskAge
	clock.set = r.image.at.Add(damagedDiskAge)
	b, err := r.env.open(mem, &clock, func(error) {})
	if err != nil {
		return flipRefused, checkRefusal(err, file, before, mem)
	}
	defer b.Close()
	contents := make([]crashContent, len(r.image.models))
	for n := range contents {
		if err := contents[n].look(r.env.ctx, b, &r.image.models[n]); err != nil {
			return flipNoticed, onlyIntegrity(err)
		}
	}
	outcome := flipHarmless
	for n := range contents {
		model, content := &r.image.models[n], &contents[n]
		if err := content.useLater(r.env.ctx, b, model, false); err != nil {
			return flipNoticed, onlyIntegrity(err)
		}
		var result crashResult
		damaged := content.takeDamaged()
		finds := result.checkLook(model, content, r.image.at.Add(damagedDiskAge))
		if damaged > 0 {
			outcome = flipSurfaced
			if result.lost > damaged || len(result.wrong) > result.lost {
				return "", fmt.Errorf("besides %d damaged dead letters: %w", damaged, result.err())
			}
			result = crashResult{} // they are there, as dead letters
		}
		result.checkUse(model, content, finds)
		if err := result.err(); err != nil {
			return "", err
		}
	}
	return outcome, nil
}

// takeDamaged removes and counts the dead letters that are marked as damaged.
func (c *crashContent) takeDamaged() int {
	isDamaged := func(reason driver.Reason) bool { return reason == driver.ReasonIntegrity }
	before := len(c.peeked)
	c.peeked = slices.DeleteFunc(c.peeked, func(p driver.Peeked) bool { return isDamaged(p.Reason) })
	c.leftDead = slices.DeleteFunc(c.leftDead, func(l driver.DeadLetter) bool { return isDamaged(l.Reason) })
	damaged := before - len(c.peeked)
	c.stats.Dead -= damaged
	c.left.Dead -= damaged
	return damaged
}

func onlyIntegrity(err error) error {
	if errors.Is(err, driver.ErrIntegrity) {
		return nil
	}
	return err
}

// checkRefusal checks that an error of Open names the damaged file and says what to do, and
// that no file changed.
func checkRefusal(err error, file string, before map[string]string, mem *vfs.MemFS) error {
	e, ok := errors.AsType[*driver.Error](err)
	switch {
	case !ok || e.Code != driver.ErrIntegrity:
		return fmt.Errorf("not an integrity error: %w", err)
	case !strings.Contains(err.Error(), path.Dir(file)) && !strings.Contains(err.Error(), strings.TrimSuffix(path.Base(file), path.Ext(file))):
		// The engine writes 000033 for 000033.sst, and does not name the OPTIONS file.
		return fmt.Errorf("neither the file nor its directory is named: %w", err)
	case !strings.Contains(err.Error(), "backup"):
		return fmt.Errorf("it does not say what to do: %w", err)
	case strings.Contains(err.Error(), "nothing was changed") && !maps.Equal(before, fileContents(mem)):
		return fmt.Errorf("the files were changed after all: %w", err)
	}
	return nil
}

// fileContents returns the files of an image, without the lock, which Open creates.
func fileContents(mem *vfs.MemFS) map[string]string {
	files := make(map[string]string)
	for _, name := range storetest.Files(mem) {
		if data, err := mem.UnsafeGetFileDataBuffer(name); err == nil && path.Base(name) != "LOCK" {
			files[name] = string(data)
		}
	}
	return files
}

// flip flips bits in files of all classes in turn, and counts the outcomes.
func (r *damagedDisk) flip(flips int, seed uint64) (counts map[string]int, err error) {
	rng := rand.New(rand.NewPCG(seed, 2))
	byClass := make(map[string][]string)
	for name, data := range fileContents(r.image.mem) {
		if data != "" {
			byClass[fileClass(name)] = append(byClass[fileClass(name)], name)
		}
	}
	classes := slices.Sorted(maps.Keys(byClass))
	for _, class := range classes {
		slices.Sort(byClass[class])
	}
	counts = make(map[string]int)
	for n := range flips {
		class := classes[n%len(classes)]
		file := byClass[class][rng.IntN(len(byClass[class]))]
		mem := r.image.mem.CrashClone(vfs.CrashCloneCfg{})
		offset, ok := storetest.Flip(mem, file, rng)
		if !ok {
			continue
		}
		result, err := r.outcome(mem, file)
		if err != nil {
			return counts, fmt.Errorf("seed %d, flip %d, in byte %d of %s: %w", seed, n, offset, file, err)
		}
		counts[class+" "+result]++
	}
	return counts, nil
}

func TestNoFlippedBitLosesOrChangesAMessage(t *testing.T) {
	volume.InFull(t)
	flips := max(1000, crashImages(t)/10)
	for n, name := range slices.Sorted(maps.Keys(damagedDiskStates)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end, seed := damagedDiskStates[name], uint64(4*(n+1)) // one client
			var r *damagedDisk
			synctest.Test(t, func(t *testing.T) { r = newDamagedDisk(t, seed, end) })
			r.env.ctx = t.Context()
			counts, err := r.flip((flips+len(damagedDiskStates)-1)/len(damagedDiskStates), seed)
			for _, outcome := range slices.Sorted(maps.Keys(counts)) {
				t.Logf("%-24s %d", outcome, counts[outcome])
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
