package diskbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store/storetest"
)

// A crashImage is a disk as it was found after a power cut, and the books of
// that moment.
type crashImage struct {
	mem    *vfs.MemFS
	books  []crashBook
	moment string
	at     time.Time
	clock  crashClock // as it was then
	depth  int        // how many cuts there were before
}

// examine opens an image, now and then cuts the power again while it does, and
// compares what is there with the books.
func (l *crashLife) examine(image *crashImage, rng *rand.Rand) {
	second := l.secondCut(image, rng)
	verdict := l.verdict(image, second, rng)
	l.tally.add(&verdict, fmt.Sprintf("seed %d, power cut %s, %d cuts before", l.seed, image.moment, image.depth))
	l.tally.count(image)
	if second == nil {
		return
	}
	for n := range second.images {
		l.examine(&second.images[n], rng)
	}
}

// verdict opens an image and judges it.
func (l *crashLife) verdict(image *crashImage, second *secondCut, rng *rand.Rand) (verdict crashVerdict) {
	disk := storetest.DiskFrom(image.mem)
	clock := image.clock
	clock.start = time.Now()
	if rng.IntN(2) == 0 {
		clock.base += time.Duration(rng.Int64N(int64(time.Minute))) // it was off for a while
	}
	at := image.at.Add(clock.base - image.clock.base)
	if rng.IntN(8) == 0 {
		clock.id, clock.base = clock.id+", another boot", time.Minute
	}
	if second != nil {
		second.disk, second.clock, second.at = disk, clock, at
		disk.Before(second.cut)
	}
	if rng.IntN(8) == 0 {
		verdict.checkFiles(l.ctx, image.mem)
	}
	var failed atomic.Pointer[error]
	b, err := l.open(disk.FS(), &clock, func(err error) { failed.Store(&err) })
	if err != nil {
		verdict.unopenable = true
		verdict.addf("it cannot be opened: %v", err)
		return verdict
	}
	if err := l.judge(&verdict, b, image, second, at, rng); err != nil {
		verdict.addf("it cannot be used: %v", err)
	}
	if err := b.Close(); err != nil {
		verdict.addf("it cannot be closed: %v", err)
	}
	if err := failed.Load(); err != nil {
		verdict.addf("it failed: %v", *err)
	}
	if rng.IntN(8) == 0 {
		verdict.checkFiles(l.ctx, image.mem)
	}
	return verdict
}

// checkFiles asks Check for an opinion.
func (v *crashVerdict) checkFiles(ctx context.Context, mem *vfs.MemFS) {
	report, err := Check(ctx, crashDir, &Options{fs: mem, small: true})
	switch {
	case errors.Is(err, driver.ErrNotFound): // nothing was made yet
	case err != nil:
		v.addf("check: %v", err)
	default:
		for _, problem := range report.Problems {
			v.addf("check: %s", problem)
		}
		if report.Orphans > 0 {
			v.addf("check: %d records belong to no queue", report.Orphans)
		}
	}
}

func (l *crashLife) judge(verdict *crashVerdict, b *Backend, image *crashImage, second *secondCut, at time.Time, rng *rand.Rand) error {
	contents := make([]crashContent, len(image.books))
	for n := range contents {
		if err := contents[n].look(l.ctx, b, &image.books[n]); err != nil {
			return err
		}
	}
	if second != nil {
		second.stop()
	}
	drain, redrive := rng.IntN(2) == 0, rng.IntN(4) == 0
	for n := range contents {
		if contents[n].exists {
			if err := contents[n].useAtOnce(l.ctx, b, &image.books[n], drain); err != nil {
				return err
			}
		}
	}
	elapse(2 * time.Minute)
	for n := range contents {
		if contents[n].exists {
			if err := contents[n].useLater(l.ctx, b, &image.books[n], redrive); err != nil {
				return err
			}
		}
	}
	for n := range contents {
		book, content := &image.books[n], &contents[n]
		if l.inspect != nil {
			l.inspect(book, content, at)
		}
		finds := verdict.judgeLook(book, content, at)
		verdict.judgeUse(book, content, finds)
	}
	return nil
}

// A secondCut cuts the power of a machine that recovers from a cut.
type secondCut struct {
	life  *crashLife
	disk  *storetest.Disk
	books []crashBook
	clock crashClock
	at    time.Time
	depth int

	mu     sync.Mutex
	rng    *rand.Rand
	left   int
	images []crashImage
}

// secondCut decides whether there is one.
func (l *crashLife) secondCut(image *crashImage, rng *rand.Rand) *secondCut {
	if image.depth >= 3 || rng.IntN(l.nests) != 0 {
		return nil
	}
	return &secondCut{
		life: l, books: image.books, depth: image.depth + 1,
		rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), left: 1 + rng.IntN(3),
	}
}

func (c *secondCut) cut(op storetest.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 || c.rng.IntN(4) != 0 {
		return nil
	}
	c.left--
	now := c.clock
	now.base = now.uptime()
	c.images = append(c.images, crashImage{
		mem: c.disk.Image(c.rng), books: c.books, depth: c.depth,
		moment: fmt.Sprintf("in recovery, before %s of %s", op.Kind, op.Path),
		at:     c.at.Add(time.Since(c.clock.start)), clock: now,
	})
	return nil
}

func (c *secondCut) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = 0
}
