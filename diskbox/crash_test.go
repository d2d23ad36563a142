package diskbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store/storetest"
)

// The tests in the crash files cut the power of machines at all moments: before
// and after every operation that matters to what is on disk, and after every
// answer. Each image of a disk is opened, and what is in it is compared with the
// books. Everything happens in virtual time.
//
// MAILBOX_CRASH_IMAGES sets how many images, in all, and MAILBOX_CRASH_SEED the
// first seed. A seed fixes what clients do and where power is cut; with more than
// one client, it does not fix who runs when.

const crashDir = "/data/queues"

// crashImages returns how many images to take: what the environment says, or a
// number that suits everyday tests.
func crashImages(t testing.TB) int {
	t.Helper()
	if raceDetector {
		return numberFromEnv(t, "MAILBOX_CRASH_IMAGES", 400)
	}
	return numberFromEnv(t, "MAILBOX_CRASH_IMAGES", 2000)
}

// numberFromEnv returns the number in a variable of the environment, and usual
// if it is not set.
func numberFromEnv(t testing.TB, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		t.Fatalf("%s is %q; set it to a number", variable, text)
	}
	return number
}

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }

// A crashClock is the clock of a machine in one boot. It goes on from base.
type crashClock struct {
	id    string
	start time.Time
	base  time.Duration
}

func (c *crashClock) boot() string          { return c.id }
func (c *crashClock) uptime() time.Duration { return c.base + time.Since(c.start) }

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

// A crashTally counts what lives come to.
type crashTally struct {
	mu                            sync.Mutex // guards the fields below
	images, nested                int
	sends                         int // answered, and looked for in an image
	lost, back, unopenable, other int
	failures                      []error
	// enough ends all lives early.
	enough atomic.Bool
}

func (t *crashTally) String() string {
	return fmt.Sprintf("%d images (%d nested), %d acknowledged sends looked for: %d lost, %d back, %d unopenable, %d otherwise wrong",
		t.images, t.nested, t.sends, t.lost, t.back, t.unopenable, t.other)
}

const crashFailuresShown = 5

// add enters a verdict. What is wrong without being lost, back or unopenable is
// otherwise wrong.
func (t *crashTally) add(v *crashVerdict, context string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := v.err()
	if err == nil {
		return
	}
	t.lost += v.lost
	t.back += v.back
	switch {
	case v.unopenable:
		t.unopenable++
	case v.lost+v.back == 0:
		t.other++
	}
	t.failures = append(t.failures, fmt.Errorf("%s: %w", context, err))
}

// expectNone fails the test for what is wrong.
func (t *crashTally) expectNone(tb testing.TB) {
	tb.Helper()
	for _, err := range t.failures[:min(len(t.failures), crashFailuresShown)] {
		tb.Error(err)
	}
}

// over reports whether there is nothing more to find out.
func (t *crashTally) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0 || t.enough.Load()
}

// A crashLife is one machine, from the creation of its queues through some
// crashes.
type crashLife struct {
	seed     uint64
	ctx      context.Context
	budget   *atomic.Int64 // images left
	tally    *crashTally
	sabotage func(vfs.FS) vfs.FS
	sync     Sync
	// inspect is shown what was found in an image before it is judged.
	inspect func(book *crashBook, c *crashContent, at time.Time)

	ledger crashLedger
	disk   *storetest.Disk
	clock  crashClock

	// halt, when it is closed, ends the load. Virtual time may stand still then,
	// because the engine is busy with a disk that has failed.
	halt chan struct{}

	rngMu  sync.Mutex
	rng    *rand.Rand
	images []crashImage

	kinds       []int // of queues, see crashQueues
	generations int
	steps       int  // of all clients together, in a generation
	dense       bool // take an image wherever there is one to take
	nests       int  // once in so many times, power is cut again in recovery
}

func newCrashLife(ctx context.Context, seed uint64, budget *atomic.Int64, tally *crashTally) *crashLife {
	l := &crashLife{seed: seed, ctx: ctx, budget: budget, tally: tally, generations: 3, steps: 100, nests: 8}
	if seed%16 == 1 {
		l.dense, l.steps = true, 40
	}
	return l
}

func (l *crashLife) halted() bool {
	select {
	case <-l.halt:
		return true
	default:
		return false
	}
}

// elapse lets virtual time pass, unless the load is to end.
func (l *crashLife) elapse(d time.Duration) {
	select {
	case <-l.halt:
	case <-time.After(d):
	}
}

// chance is true once in n times.
func (l *crashLife) chance(n int) bool {
	l.rngMu.Lock()
	defer l.rngMu.Unlock()
	return l.rng.IntN(n) == 0
}

// cutBefore is the hook of the disk.
func (l *crashLife) cutBefore(op storetest.Operation) error {
	rarely := 16
	if !op.Kind.Durability() {
		rarely = 48
	}
	if l.dense || l.chance(rarely) {
		l.cut(fmt.Sprintf("before %s of %s", op.Kind, op.Path))
	}
	return nil
}

// cutAfterAnswer is called by clients when they have their answer.
func (l *crashLife) cutAfterAnswer() {
	if l.dense || l.chance(12) {
		l.cut("after an answer")
	}
}

// cut takes an image. While the books are locked nothing begins and nothing is
// answered, so the books are those of the moment.
func (l *crashLife) cut(moment string) {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	if l.budget.Add(-1) < 0 {
		return
	}
	l.rngMu.Lock()
	mem := l.disk.Image(l.rng)
	l.rngMu.Unlock()
	now := l.clock
	now.base, now.start = now.uptime(), time.Now()
	l.images = append(l.images, crashImage{mem: mem, books: l.ledger.snapshotLocked(), moment: moment, at: time.Now(), clock: now})
}

// prepare sets up a machine with an empty disk, and books for some queues.
func (l *crashLife) prepare() {
	l.rng = rand.New(rand.NewPCG(l.seed, 1))
	l.disk = storetest.NewDisk()
	l.clock = crashClock{id: "boot 0", start: time.Now(), base: time.Hour}
	if l.kinds == nil {
		l.kinds = l.rng.Perm(len(crashQueues))[:3]
	}
	for _, n := range l.kinds {
		l.ledger.books = append(l.ledger.books, &crashBook{
			name: crashQueues[n].name, config: crashQueues[n].config, moves: crashQueues[n].moves,
		})
	}
}

// run lives the life and then looks at all its images.
func (l *crashLife) run() {
	l.prepare()
	for generation := range l.generations {
		var verdict crashVerdict
		l.generation(generation, &verdict)
		l.tally.add(&verdict, fmt.Sprintf("seed %d, generation %d", l.seed, generation))
		if len(verdict.wrong) > 0 || l.budget.Load() <= 0 {
			break
		}
	}
	for n := range l.images {
		if l.tally.over() {
			return
		}
		l.examine(&l.images[n], rand.New(rand.NewPCG(l.seed, uint64(1000+n))))
		l.images[n].mem = nil
	}
}

func (l *crashLife) open(fs vfs.FS, clock *crashClock, onFail func(error)) (*Backend, error) {
	return Open(l.ctx, crashDir, &Options{fs: fs, boot: clock, small: true, Sync: l.sync, OnFail: onFail})
}

// generation opens what is there, lets clients work, and crashes.
func (l *crashLife) generation(number int, verdict *crashVerdict) {
	fs := l.disk.FS()
	if l.sabotage != nil {
		fs = l.sabotage(fs)
	}
	first := len(l.images)
	l.disk.Before(l.cutBefore)
	defer l.disk.Before(func(storetest.Operation) error { return nil })
	var failed atomic.Pointer[error]
	clock := l.clock
	b, err := l.open(fs, &clock, func(err error) { failed.Store(&err) })
	if err != nil {
		verdict.unopenable = true
		verdict.addf("open: %v", err)
		return
	}
	if number > 0 {
		err = l.takeStock(b, verdict)
	}
	if err == nil && len(verdict.wrong) == 0 {
		err = errors.Join(l.configure(b), l.load(b, number))
	}
	l.ledger.mu.Lock()
	taken := len(l.images) - first // before it is closed; what rides along may still be cut
	l.ledger.mu.Unlock()
	if err := errors.Join(err, b.Close()); err != nil {
		verdict.addf("%v", err)
	}
	if failure := failed.Load(); failure != nil {
		verdict.addf("it failed: %v", *failure)
	}
	if taken > 0 {
		l.crash(&l.images[first+l.rng.IntN(taken)])
	}
}

// crash makes an image the disk of the next generation.
func (l *crashLife) crash(image *crashImage) {
	l.disk = storetest.DiskFrom(image.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(l.seed, 2))}))
	l.ledger.mu.Lock()
	for n := range image.books {
		*l.ledger.books[n] = image.books[n]
		l.ledger.books[n].items = append([]crashItem(nil), image.books[n].items...)
	}
	l.ledger.mu.Unlock()
	if l.chance(3) {
		l.clock = crashClock{id: l.clock.id + "+", start: time.Now(), base: time.Minute}
	}
}

// takeStock enters what a crash has left.
func (l *crashLife) takeStock(b *Backend, verdict *crashVerdict) error {
	var found [][]crashFind
	for _, book := range l.ledger.books {
		var content crashContent
		if err := content.look(l.ctx, b, book); err != nil {
			return err
		}
		found = append(found, verdict.judgeLook(book, &content, time.Now()))
	}
	l.ledger.rebase(found)
	return nil
}

func (l *crashLife) configure(b *Backend) error {
	for _, book := range l.ledger.books {
		if book.moves {
			if err := b.ConfigureQueue(l.ctx, book.beside(), book.config); err != nil {
				return err
			}
		}
		if err := b.ConfigureQueue(l.ctx, book.name, book.config); err != nil {
			return err
		}
		l.ledger.mu.Lock()
		book.configured = true
		l.ledger.mu.Unlock()
		l.cutAfterAnswer()
	}
	return nil
}

// load lets clients work.
func (l *crashLife) load(b *Backend, generation int) error {
	var queues []crashQueue
	for _, book := range l.ledger.books {
		q, err := b.OpenQueue(l.ctx, book.name)
		if err != nil {
			return err
		}
		opened := crashQueue{book: book, queue: q}
		if name := book.beside(); name != "" {
			if opened.beside, err = b.OpenQueue(l.ctx, name); err != nil {
				return err
			}
		}
		queues = append(queues, opened)
	}
	clients := 1 + int(l.seed)%4
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for n := range clients {
		c := &crashClient{life: l, ctx: l.ctx, steps: l.steps / clients, rng: rand.New(rand.NewPCG(l.seed, uint64(100+10*generation+n)))}
		wg.Go(func() { errs[n] = c.work(queues) })
	}
	wg.Wait()
	return errors.Join(errs...)
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

// count counts an image.
func (t *crashTally) count(image *crashImage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.images++
	if image.depth > 0 {
		t.nested++
	}
	for n := range image.books {
		for token := range image.books[n].items {
			if !image.books[n].items[token].unsent {
				t.sends++
			}
		}
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

// secondCut decides whether there is to be one.
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

// fill lives lives, several at a time, until the images are used up or something
// is wrong.
func (t *crashTally) fill(tb *testing.T, images int, configure func(*crashLife)) {
	tb.Helper()
	var budget atomic.Int64
	budget.Store(int64(images))
	var seeds, lives atomic.Uint64
	seeds.Store(uint64(numberFromEnv(tb, "MAILBOX_CRASH_SEED", 1) - 1))
	start := time.Now()
	tb.Run("lives", func(tb *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			tb.Run(strconv.Itoa(n), func(tb *testing.T) {
				tb.Parallel()
				for budget.Load() > 0 && !t.over() {
					seed := seeds.Add(1)
					lives.Add(1)
					synctest.Test(tb, func(tb *testing.T) {
						l := newCrashLife(tb.Context(), seed, &budget, t)
						if configure != nil {
							configure(l)
						}
						l.run()
					})
				}
			})
		}
	})
	tb.Logf("%v; %d lives, %.0f images a second", t, lives.Load(), float64(t.images)/time.Since(start).Seconds())
}

func TestNoPowerCutLosesWhatWasAcknowledged(t *testing.T) {
	var tally crashTally
	tally.fill(t, crashImages(t), nil)
	tally.expectNone(t)
}

// Nothing is promised before Open has returned, but that the next one works.
func TestPowerCutsWhileTheDirectoryIsMadeLeaveOneThatOpens(t *testing.T) {
	var tally crashTally
	tally.fill(t, max(crashImages(t)/10, 50), func(l *crashLife) {
		l.dense, l.steps, l.generations, l.nests = true, 0, 1, 3
	})
	tally.expectNone(t)
}
