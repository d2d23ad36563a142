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
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// A crashImage is the disk after a power cut, and the models of that moment.
type crashImage struct {
	mem    *vfs.MemFS
	models []crashModel
	moment string
	at     time.Time
	clock  crashClock // at that moment
	depth  int        // number of earlier cuts
}

// examine opens an image and compares it with the models. Now and then it cuts the power again
// while it does.
func (e *crashEnv) examine(image *crashImage, rng *rand.Rand) {
	second := e.secondCut(image, rng)
	result := e.result(image, second, rng)
	e.summary.add(&result, fmt.Sprintf("seed %d, power cut %s, %d cuts before", e.seed, image.moment, image.depth))
	e.summary.count(image)
	if second == nil {
		return
	}
	for n := range second.images {
		e.examine(&second.images[n], rng)
	}
}

// result opens an image and checks it.
func (e *crashEnv) result(image *crashImage, second *secondCut, rng *rand.Rand) (result crashResult) {
	disk := storetest.DiskFrom(image.mem)
	clock := image.clock
	clock.start = time.Now()
	if rng.IntN(2) == 0 {
		clock.base += time.Duration(rng.Int64N(int64(time.Minute))) // the machine was off for a while
	}
	at := image.at.Add(clock.base - image.clock.base)
	clock.set = at // images are opened later in virtual time
	if rng.IntN(8) == 0 {
		clock.id, clock.base = clock.id+", another boot", time.Minute
	}
	if second != nil {
		second.disk, second.clock, second.at = disk, clock, at
		disk.Before(second.cut)
	}
	if rng.IntN(8) == 0 {
		result.checkFiles(e.ctx, image.mem)
	}
	var failed atomic.Pointer[error]
	b, err := e.open(disk.FS(), &clock, func(err error) { failed.Store(&err) })
	if err != nil {
		result.unopenable = true
		result.addf("it cannot be opened: %v", err)
		return result
	}
	if err := e.check(&result, b, image, second, at, rng); err != nil {
		result.addf("it cannot be used: %v", err)
	}
	if err := b.Close(); err != nil {
		result.addf("it cannot be closed: %v", err)
	}
	if err := failed.Load(); err != nil {
		result.addf("it failed: %v", *err)
	}
	if rng.IntN(8) == 0 {
		result.checkFiles(e.ctx, image.mem)
	}
	return result
}

// checkFiles runs Check on the image.
func (v *crashResult) checkFiles(ctx context.Context, mem *vfs.MemFS) {
	report, err := Check(ctx, crashDir, &Options{fs: mem, small: true})
	switch {
	case errors.Is(err, driver.ErrNotFound): // the directory was not created yet
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

func (e *crashEnv) check(result *crashResult, b *Backend, image *crashImage, second *secondCut, at time.Time, rng *rand.Rand) error {
	contents := make([]crashContent, len(image.models))
	for n := range contents {
		if err := contents[n].look(e.ctx, b, &image.models[n]); err != nil {
			return err
		}
	}
	if second != nil {
		second.stop()
	}
	drain, redrive := rng.IntN(2) == 0, rng.IntN(4) == 0
	for n := range contents {
		if contents[n].exists {
			if err := contents[n].useAtOnce(e.ctx, b, &image.models[n], drain); err != nil {
				return err
			}
		}
	}
	elapse(2 * time.Minute)
	for n := range contents {
		if contents[n].exists {
			if err := contents[n].useLater(e.ctx, b, &image.models[n], redrive); err != nil {
				return err
			}
		}
	}
	for n := range contents {
		model, content := &image.models[n], &contents[n]
		if e.inspect != nil {
			e.inspect(model, content, at)
		}
		finds := result.checkLook(model, content, at)
		result.checkUse(model, content, finds)
	}
	return nil
}

// A secondCut cuts the power of a machine that recovers from a cut.
type secondCut struct {
	env    *crashEnv
	disk   *storetest.Disk
	models []crashModel
	clock  crashClock
	at     time.Time
	depth  int

	mu     sync.Mutex
	rng    *rand.Rand
	left   int
	images []crashImage
}

// secondCut decides whether there is a second cut.
func (e *crashEnv) secondCut(image *crashImage, rng *rand.Rand) *secondCut {
	if image.depth >= 3 || rng.IntN(e.nests) != 0 {
		return nil
	}
	return &secondCut{
		env: e, models: image.models, depth: image.depth + 1,
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
		mem: c.disk.Image(c.rng), models: c.models, depth: c.depth,
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
