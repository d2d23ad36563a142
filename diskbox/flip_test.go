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
	"github.com/mailboxmq/mailbox/internal/store/storetest"
)

// A rottenDisk is one to flip bits in, with the books of what is on it.
type rottenDisk struct {
	life  *crashLife
	image crashImage
}

// rottenAge is for how long a disk lies in a drawer: everything on it is due, and
// nothing is leased. A test cannot wait for that in virtual time, which stands still
// while the engine tries to read a damaged table, again and again.
const rottenAge = 10 * time.Minute

// newRottenDisk lets a client fill queues, through a restart, so that there are
// files of all kinds, and takes the disk away in the state that end leaves it
// in.
func newRottenDisk(t *testing.T, seed uint64, end func(*rottenDisk, *Backend) error) *rottenDisk {
	t.Helper()
	var budget atomic.Int64 // no images
	l := newCrashLife(t.Context(), seed, &budget, &crashTally{})
	l.kinds = []int{0, 1, 2, 4} // those that lose nothing to time
	l.prepare()
	r := &rottenDisk{life: l}
	for generation := range 2 {
		b, err := l.open(l.disk.FS(), &l.clock, func(err error) { t.Errorf("it failed: %v", err) })
		if err != nil {
			t.Fatal(err)
		}
		l.steps = 300
		if err := errors.Join(l.configure(b), l.load(b, generation)); err != nil {
			t.Fatal(err)
		}
		if generation == 1 {
			if err := end(r, b); err != nil {
				t.Fatal(err)
			}
			l.ledger.mu.Lock()
			now := l.clock
			now.base = now.uptime()
			r.image = crashImage{
				mem: l.disk.Mem().CrashClone(vfs.CrashCloneCfg{}), books: l.ledger.snapshotLocked(), at: time.Now(), clock: now,
			}
			l.ledger.mu.Unlock()
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// rottenStates are the states a disk can be left in.
var rottenStates = map[string]func(*rottenDisk, *Backend) error{
	"closed": func(_ *rottenDisk, b *Backend) error { return b.Close() },
	"idle": func(*rottenDisk, *Backend) error {
		elapse(10 * time.Second)
		return nil
	},
	// Damage in the commit of the last sync before a crash looks like a commit
	// that the crash prevented, so the last send counts as not answered.
	"crashed": func(r *rottenDisk, b *Backend) error {
		book := r.life.ledger.books[0]
		q, err := b.OpenQueue(r.life.ctx, book.name)
		if err != nil {
			return err
		}
		out := driver.Outgoing{Body: []byte("the last"), CorrelationID: fmt.Sprint(len(book.items))}
		token := book.addLocked(out)
		r.life.ledger.begin(book, deedSend, []int{token})
		_, err = q.Send(r.life.ctx, []driver.Outgoing{out})
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
	flipRefused  = "refused"  // Open says so
	flipNoticed  = "noticed"  // an operation says so
	flipSurfaced = "surfaced" // as a dead letter with reason integrity
	flipHarmless = "harmless" // everything is there
)

// outcome opens the image of a disk with a flipped bit and says what came of
// that, or returns an error for what must not come of it.
func (r *rottenDisk) outcome(mem *vfs.MemFS, file string) (string, error) {
	before := fileContents(mem)
	clock := r.image.clock
	clock.start = time.Now()
	clock.base += rottenAge
	b, err := r.life.open(mem, &clock, func(error) {})
	if err != nil {
		return flipRefused, judgeRefusal(err, file, before, mem)
	}
	defer b.Close()
	contents := make([]crashContent, len(r.image.books))
	for n := range contents {
		if err := contents[n].look(r.life.ctx, b, &r.image.books[n]); err != nil {
			return flipNoticed, onlyIntegrity(err)
		}
	}
	result := flipHarmless
	for n := range contents {
		book, content := &r.image.books[n], &contents[n]
		if err := content.useLater(r.life.ctx, b, book, false); err != nil {
			return flipNoticed, onlyIntegrity(err)
		}
		var verdict crashVerdict
		damaged := content.takeDamaged()
		finds := verdict.judgeLook(book, content, r.image.at.Add(rottenAge))
		if damaged > 0 {
			result = flipSurfaced
			if verdict.lost > damaged || len(verdict.wrong) > verdict.lost {
				return "", fmt.Errorf("besides %d damaged dead letters: %w", damaged, verdict.err())
			}
			verdict = crashVerdict{} // they are there, as dead letters
		}
		verdict.judgeUse(book, content, finds)
		if err := verdict.err(); err != nil {
			return "", err
		}
	}
	return result, nil
}

// takeDamaged takes out the dead letters that say that they were damaged.
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

// judgeRefusal checks that an error of Open says which file is damaged and what
// to do, and does not lie.
func judgeRefusal(err error, file string, before map[string]string, mem *vfs.MemFS) error {
	e, ok := errors.AsType[*driver.Error](err)
	switch {
	case !ok || e.Code != driver.ErrIntegrity:
		return fmt.Errorf("not an integrity error: %w", err)
	case !strings.Contains(err.Error(), path.Dir(file)) && !strings.Contains(err.Error(), strings.TrimSuffix(path.Base(file), path.Ext(file))):
		// The engine says 000033 for 000033.sst, and does not say which OPTIONS.
		return fmt.Errorf("neither the file nor its directory is named: %w", err)
	case !strings.Contains(err.Error(), "backup"):
		return fmt.Errorf("it does not say what to do: %w", err)
	case strings.Contains(err.Error(), "nothing was changed") && !maps.Equal(before, fileContents(mem)):
		return fmt.Errorf("the files were changed after all: %w", err)
	}
	return nil
}

// fileContents returns the files of an image, without the lock, which opening
// creates.
func fileContents(mem *vfs.MemFS) map[string]string {
	files := make(map[string]string)
	for _, name := range storetest.Files(mem) {
		if data, err := mem.UnsafeGetFileDataBuffer(name); err == nil && path.Base(name) != "LOCK" {
			files[name] = string(data)
		}
	}
	return files
}

// flip flips bits in files of all classes in turn, and counts what comes of it.
func (r *rottenDisk) flip(flips int, seed uint64) (counts map[string]int, err error) {
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
	flips := 1000
	if raceDetector {
		flips = 45
	}
	flips = max(flips, crashImages(t)/10)
	for n, name := range slices.Sorted(maps.Keys(rottenStates)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end, seed := rottenStates[name], uint64(4*(n+1)) // one client
			var r *rottenDisk
			synctest.Test(t, func(t *testing.T) { r = newRottenDisk(t, seed, end) })
			r.life.ctx = t.Context()
			counts, err := r.flip((flips+len(rottenStates)-1)/len(rottenStates), seed)
			for _, outcome := range slices.Sorted(maps.Keys(counts)) {
				t.Logf("%-24s %d", outcome, counts[outcome])
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
