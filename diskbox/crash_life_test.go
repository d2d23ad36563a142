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

	"github.com/mailboxmq/mailbox/internal/store/storetest"
)

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
			if err := b.ConfigureQueue(l.ctx, book.beside(), book.config.Effective()); err != nil {
				return err
			}
		}
		if err := b.ConfigureQueue(l.ctx, book.name, book.config.Effective()); err != nil {
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
