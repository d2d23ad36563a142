package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A crashRun fills a store from several goroutines and takes images of power cuts before every
// relevant operation, while they continue. Each image is opened and compared with the commits
// acknowledged at that moment.
type crashRun struct {
	ctx     context.Context
	budget  *atomic.Int64 // images left
	options func(vfs.FS) *Options
	// sabotage wraps the file system of the store that is being filled.
	sabotage func(vfs.FS) vfs.FS
	// lazy: only explicitly synced commits count as acknowledged.
	lazy bool
	// sparse skips most images, if one bad image is enough.
	sparse bool

	writers [crashWriters]struct{ issued, acked atomic.Int64 }
	drops   struct{ setIssued, setAcked, dropIssued, dropAcked atomic.Int64 }

	mu     sync.Mutex
	rng    *rand.Rand
	images int
	failed error
	nested atomic.Int64
}

const (
	crashWriters = 3
	crashKept    = 12 // live keys per writer
	crashGroup   = 4  // keys dropped together
)

// expectation is a lower bound of the content of an image, taken before it, completed with
// upper bounds taken after it.
type expectation struct {
	acked, issued        [crashWriters]int64
	setAcked, setIssued  int64
	dropAcked, dropIssue int64
}

func (r *crashRun) before() (e expectation) {
	for w := range r.writers {
		e.acked[w] = r.writers[w].acked.Load()
	}
	e.setAcked, e.dropAcked = r.drops.setAcked.Load(), r.drops.dropAcked.Load()
	return e
}

func (r *crashRun) after(e *expectation) {
	for w := range r.writers {
		e.issued[w] = r.writers[w].issued.Load()
	}
	e.setIssued, e.dropIssue = r.drops.setIssued.Load(), r.drops.dropIssued.Load()
}

// cut is the hook of the disk.
func (r *crashRun) cut(disk *storetest.Disk, op storetest.Operation) {
	if !op.Kind.Durability() {
		return
	}
	e := r.before()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil || r.sparse && r.rng.IntN(8) != 0 || r.budget.Add(-1) < 0 {
		return
	}
	image := disk.Image(r.rng)
	r.after(&e)
	r.images++
	if err := r.examine(image, &e, 0, r.rng); err != nil && r.failed == nil {
		r.failed = fmt.Errorf("power cut before %s of %s: %w", op.Kind, op.Path, err)
	}
}

// examine opens an image and, now and then, cuts the power again while it does.
func (r *crashRun) examine(image *vfs.MemFS, e *expectation, depth int, rng *rand.Rand) error {
	disk := storetest.DiskFrom(image)
	second := &secondCut{run: r, disk: disk, expect: e, depth: depth + 1, left: 1 + rng.IntN(3), rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
	if depth < 2 && rng.IntN(8) == 0 {
		disk.Before(second.cut)
	}
	o := r.options(disk.FS())
	s, err := Open(r.ctx, testDir, o)
	if err != nil {
		return fmt.Errorf("cannot be opened: %w", err)
	}
	err = r.compare(s, e)
	if err == nil && rng.IntN(8) == 0 {
		err = stillWorks(s)
	}
	return errors.Join(err, s.Close(), second.err())
}

// secondCut cuts the power while a store recovers from the first cut.
type secondCut struct {
	run    *crashRun
	disk   *storetest.Disk
	expect *expectation
	depth  int

	mu     sync.Mutex
	rng    *rand.Rand
	left   int
	failed error
}

func (c *secondCut) cut(op storetest.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !op.Kind.Durability() || c.left == 0 || c.rng.IntN(4) != 0 {
		return nil
	}
	c.left--
	c.run.nested.Add(1)
	if err := c.run.examine(c.disk.Image(c.rng), c.expect, c.depth, c.rng); err != nil && c.failed == nil {
		c.failed = fmt.Errorf("second cut, before %s of %s: %w", op.Kind, op.Path, err)
	}
	return nil
}

func (c *secondCut) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func stillWorks(s *Store) error {
	b := s.NewBatch()
	b.Set([]byte("after"), []byte("crash"))
	if err := s.Commit(b, true); err != nil {
		return err
	}
	_, err := s.Get([]byte("after"), nil)
	return err
}

func (r *crashRun) compare(s *Store, e *expectation) error {
	for w := range r.writers {
		if err := compareWriter(s, w, e.acked[w], e.issued[w]); err != nil {
			return fmt.Errorf("writer %d: %w", w, err)
		}
	}
	return compareDrops(s, e)
}

func writerKey(w int, n int64) []byte { return fmt.Appendf(nil, "w%d/%08d", w, n) }
func writerLast(w int) []byte         { return fmt.Appendf(nil, "last/%d", w) }

// writerValue returns the value of a writer's n-th key, of any size from 0 to more than a
// memtable. Large ones are rare: if one is torn, the engine tries every bit of a chunk, which
// takes time with the square of its size.
func writerValue(w int, n int64) []byte {
	rng := rand.New(rand.NewPCG(uint64(w), uint64(n)))
	size := rng.IntN(1500)
	switch rng.IntN(100) {
	case 0:
		size = rng.IntN(80 << 10)
	case 1, 2, 3, 4, 5:
		size = rng.IntN(8 << 10)
	case 6, 7:
		size = 0
	}
	value := make([]byte, size)
	for i := 0; i < len(value); i += 61 {
		value[i] = byte(rng.Uint32())
	}
	return value
}

// compareWriter checks that the writer's commits are present up to one of them, each entirely,
// and that no acknowledged one is missing.
func compareWriter(s *Store, w int, acked, issued int64) error {
	var last int64
	text, err := s.Get(writerLast(w), nil)
	if err == nil {
		last, err = strconv.ParseInt(string(text), 10, 64)
	}
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	if last < acked || last > issued {
		return fmt.Errorf("last commit is %d, acknowledged were %d, issued %d", last, acked, issued)
	}
	it := s.Iterate(fmt.Appendf(nil, "w%d/", w), fmt.Appendf(nil, "w%d0", w))
	defer it.Close()
	for n := max(1, last-crashKept+1); n <= last; n++ {
		if !it.Next() {
			return fmt.Errorf("commit %d of %d is missing: %w", n, last, it.Err())
		}
		if string(it.Key()) != string(writerKey(w, n)) {
			return fmt.Errorf("found %q instead of commit %d of %d", it.Key(), n, last)
		}
		if string(it.Value()) != string(writerValue(w, n)) {
			return fmt.Errorf("commit %d has a wrong value", n)
		}
	}
	if it.Next() {
		return fmt.Errorf("%q is back", it.Key())
	}
	return it.Err()
}

func (r *crashRun) write(s *Store, w int, commits int64) error {
	b := s.NewBatch()
	for n := int64(1); n <= commits; n++ {
		b.Set(writerKey(w, n), writerValue(w, n))
		b.Set(writerLast(w), strconv.AppendInt(nil, n, 10))
		if old := n - crashKept; old > 0 {
			switch n % 3 {
			case 0:
				b.Delete(writerKey(w, old))
			case 1:
				b.DeleteSized(writerKey(w, old), len(writerValue(w, old)))
			default:
				b.DeleteRange(writerKey(w, 0), writerKey(w, old+1))
			}
		}
		r.writers[w].issued.Store(n)
		durable := n%4 != 0
		if err := s.Commit(b, durable); err != nil {
			return err
		}
		if r.lazy {
			if n%8 != 0 {
				continue
			}
			if err := s.Sync(); err != nil {
				return err
			}
		} else if !durable {
			continue
		}
		r.writers[w].acked.Store(n)
	}
	return nil
}

func dropKey(group int64, i int) []byte { return fmt.Appendf(nil, "x%08d/%d", group, i) }

// dropGroups writes groups of keys and drops them again, each with one call.
func (r *crashRun) dropGroups(s *Store, groups int64) error {
	b := s.NewBatch()
	for g := int64(1); g <= groups; g++ {
		for i := range crashGroup {
			b.Set(dropKey(g, i), []byte("value"))
		}
		r.drops.setIssued.Store(g)
		if err := s.Commit(b, true); err != nil {
			return err
		}
		if r.lazy {
			if err := s.Sync(); err != nil {
				return err
			}
		}
		r.drops.setAcked.Store(g)
		r.drops.dropIssued.Store(g)
		if err := s.DropRange(r.ctx, fmt.Appendf(nil, "x%08d/", g), fmt.Appendf(nil, "x%08d0", g)); err != nil {
			return err
		}
		r.drops.dropAcked.Store(g)
	}
	return nil
}

func compareDrops(s *Store, e *expectation) error {
	found := make(map[string]int)
	it := s.Iterate([]byte("x"), []byte("y"))
	for key := range it.All() {
		found[string(key[:9])]++
	}
	if err := it.Close(); err != nil {
		return err
	}
	for g := int64(1); g <= e.setIssued; g++ {
		n := found[string(dropKey(g, 0)[:9])]
		switch {
		case g <= e.dropAcked && n != 0:
			return fmt.Errorf("group %d was dropped and is back", g)
		case g <= e.setAcked && g > e.dropIssue && n != crashGroup:
			return fmt.Errorf("group %d has %d keys of %d", g, n, crashGroup)
		case n != 0 && n != crashGroup:
			return fmt.Errorf("group %d has %d keys of %d", g, n, crashGroup)
		}
	}
	return nil
}

// life creates, fills and restarts one store.
func (r *crashRun) life(seed uint64) error {
	r.rng = rand.New(rand.NewPCG(seed, 42))
	disk := storetest.NewDisk()
	disk.Before(func(op storetest.Operation) error {
		r.cut(disk, op)
		return nil
	})
	fs := disk.FS()
	if r.sabotage != nil {
		fs = r.sabotage(fs)
	}
	o := r.options(fs)
	for restart := range 3 {
		s, err := Open(r.ctx, testDir, o)
		if err != nil {
			return err
		}
		if restart == 0 {
			err = r.fill(s)
		} else {
			e := r.before()
			r.after(&e)
			err = r.compare(s, &e)
		}
		if err := errors.Join(err, s.Close()); err != nil {
			return err
		}
	}
	return r.failed
}

func (r *crashRun) fill(s *Store) error {
	errs := make([]error, crashWriters+1)
	var wg sync.WaitGroup
	for w := range crashWriters {
		wg.Go(func() { errs[w] = r.write(s, w, 48) })
	}
	wg.Go(func() { errs[crashWriters] = r.dropGroups(s, 4) })
	wg.Wait()
	return errors.Join(errs...)
}

// crash runs stores until the images are used up or one is bad.
func crash(t *testing.T, images int, configure func(*crashRun)) (taken int, err error) {
	var budget atomic.Int64
	budget.Store(int64(images))
	nested := int64(0)
	start := time.Now()
	for seed := uint64(1); budget.Load() > 0 && err == nil; seed++ {
		r := &crashRun{ctx: t.Context(), budget: &budget, options: memOptions}
		if configure != nil {
			configure(r)
		}
		err = r.life(seed)
		taken += r.images
		nested += r.nested.Load()
		if err != nil {
			err = fmt.Errorf("seed %d, image %d: %w", seed, r.images, err)
		}
	}
	all := int64(taken) + nested
	t.Logf("%d images, %d of them nested, %.0f per second", all, nested, float64(all)/time.Since(start).Seconds())
	return taken, err
}

func TestNoPowerCutLosesWhatWasAcknowledged(t *testing.T) {
	volume.Repeats(t)
	if _, err := crash(t, scaled(t, 600), nil); err != nil {
		t.Fatal(err)
	}
}

// A lazy store keeps weaker promises: synced commits survive a power cut, the others survive up
// to some commit, and the store always opens.
func TestLazyStoreKeepsSyncedCommits(t *testing.T) {
	volume.Repeats(t)
	for _, policy := range []SyncPolicy{SyncInterval(5 * time.Millisecond), SyncNone()} {
		t.Run(policy.String(), func(t *testing.T) {
			_, err := crash(t, scaled(t, 150), func(r *crashRun) {
				r.lazy = true
				r.options = func(fs vfs.FS) *Options {
					o := memOptions(fs)
					o.Sync = policy
					return o
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The saboteurs break one promise each. A run that does not detect one would not detect the
// same bug in the store.
func TestEverySaboteurIsCaught(t *testing.T) {
	volume.InFull(t)
	saboteurs := map[string]func(*crashRun){
		"acknowledges before the sync": func(r *crashRun) {
			r.sabotage = func(fs vfs.FS) vfs.FS { return storetest.IgnoreSyncs(fs, storetest.Logs) }
		},
		"does not sync directories": func(r *crashRun) {
			r.sabotage = func(fs vfs.FS) vfs.FS { return storetest.IgnoreSyncs(fs, storetest.Directories) }
		},
		"loses the seal of the manifest": func(r *crashRun) {
			r.sabotage = storetest.LoseSeals
		},
		"claims that lazy commits are durable": func(r *crashRun) {
			r.options = func(fs vfs.FS) *Options {
				o := memOptions(fs)
				o.Sync = SyncNone()
				return o
			}
		},
	}
	for name, sabotage := range saboteurs {
		t.Run(name, func(t *testing.T) {
			images, err := crash(t, 1000, func(r *crashRun) {
				r.sparse = true
				sabotage(r)
			})
			if err == nil {
				t.Fatalf("not caught in %d images", images)
			}
			t.Logf("caught after %d images: %v", images, err)
		})
	}
}
