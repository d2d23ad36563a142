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

	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// A crashEnv is one machine, from the creation of its queues through some crashes.
type crashEnv struct {
	seed     uint64
	ctx      context.Context
	budget   *atomic.Int64 // images left
	summary  *crashSummary
	sabotage func(vfs.FS) vfs.FS
	sync     Sync
	// inspect gets the content of an image before it is checked.
	inspect func(model *crashModel, c *crashContent, at time.Time)

	models crashModels
	disk   *storetest.Disk
	clock  crashClock

	// halt, when it is closed, ends the load. Virtual time may stand still then, because the
	// engine keeps retrying on a failed disk.
	halt chan struct{}

	rngMu  sync.Mutex
	rng    *rand.Rand
	images []crashImage

	kinds       []int // kinds of queues, see crashQueues
	generations int
	steps       int  // steps of all clients in a generation
	dense       bool // take an image at every opportunity
	nests       int  // once in nests times, power is cut again in recovery
}

func newCrashEnv(ctx context.Context, seed uint64, budget *atomic.Int64, summary *crashSummary) *crashEnv {
	e := &crashEnv{seed: seed, ctx: ctx, budget: budget, summary: summary, generations: 3, steps: 100, nests: 8}
	if seed%16 == 1 {
		e.dense, e.steps = true, 40
	}
	return e
}

func (e *crashEnv) halted() bool {
	select {
	case <-e.halt:
		return true
	default:
		return false
	}
}

// elapse lets virtual time pass, unless the load must end.
func (e *crashEnv) elapse(d time.Duration) {
	select {
	case <-e.halt:
	case <-time.After(d):
	}
}

// chance is true once in n times.
func (e *crashEnv) chance(n int) bool {
	e.rngMu.Lock()
	defer e.rngMu.Unlock()
	return e.rng.IntN(n) == 0
}

// cutBefore is the hook of the disk.
func (e *crashEnv) cutBefore(op storetest.Operation) error {
	rarely := 16
	if !op.Kind.Durability() {
		rarely = 48
	}
	if e.dense || e.chance(rarely) {
		e.cut(fmt.Sprintf("before %s of %s", op.Kind, op.Path))
	}
	return nil
}

// cutAfterAnswer is called by clients after each answer.
func (e *crashEnv) cutAfterAnswer() {
	if e.dense || e.chance(12) {
		e.cut("after an answer")
	}
}

// cut takes an image. While the models are locked no operation begins or is answered, so the
// models match the image.
func (e *crashEnv) cut(moment string) {
	e.models.mu.Lock()
	defer e.models.mu.Unlock()
	if e.budget.Add(-1) < 0 {
		return
	}
	e.rngMu.Lock()
	mem := e.disk.Image(e.rng)
	e.rngMu.Unlock()
	now := e.clock
	now.base, now.start = now.uptime(), time.Now()
	e.images = append(e.images, crashImage{mem: mem, models: e.models.snapshotLocked(), moment: moment, at: time.Now(), clock: now})
}

// prepare sets up a machine with an empty disk, and models of some queues.
func (e *crashEnv) prepare() {
	e.rng = rand.New(rand.NewPCG(e.seed, 1))
	e.disk = storetest.NewDisk()
	e.clock = crashClock{id: "boot 0", start: time.Now(), base: time.Hour, set: time.Now()}
	if e.kinds == nil {
		e.kinds = e.rng.Perm(len(crashQueues))[:3]
	}
	for _, n := range e.kinds {
		e.models.queues = append(e.models.queues, &crashModel{
			name: crashQueues[n].name, config: crashQueues[n].config, moves: crashQueues[n].moves,
		})
	}
}

// run runs all generations and then checks all images.
func (e *crashEnv) run() {
	e.prepare()
	for generation := range e.generations {
		var result crashResult
		e.generation(generation, &result)
		e.summary.add(&result, fmt.Sprintf("seed %d, generation %d", e.seed, generation))
		if len(result.wrong) > 0 || e.budget.Load() <= 0 {
			break
		}
	}
	for n := range e.images {
		if e.summary.over() {
			return
		}
		e.examine(&e.images[n], rand.New(rand.NewPCG(e.seed, uint64(1000+n))))
		e.images[n].mem = nil
	}
}

func (e *crashEnv) open(fs vfs.FS, clock *crashClock, onFail func(error)) (*Backend, error) {
	return Open(e.ctx, crashDir, &Options{fs: fs, boot: clock, wall: clock.wall, small: true, Sync: e.sync, OnFail: onFail})
}

// generation opens the backend, lets clients work, and crashes.
func (e *crashEnv) generation(number int, result *crashResult) {
	fs := e.disk.FS()
	if e.sabotage != nil {
		fs = e.sabotage(fs)
	}
	first := len(e.images)
	e.disk.Before(e.cutBefore)
	defer e.disk.Before(func(storetest.Operation) error { return nil })
	var failed atomic.Pointer[error]
	clock := e.clock
	b, err := e.open(fs, &clock, func(err error) { failed.Store(&err) })
	if err != nil {
		result.unopenable = true
		result.addf("open: %v", err)
		return
	}
	if number > 0 {
		err = e.adoptFound(b, result)
	}
	if err == nil && len(result.wrong) == 0 {
		err = errors.Join(e.configure(b), e.load(b, number))
	}
	e.models.mu.Lock()
	taken := len(e.images) - first // before Close, which may still write leases
	e.models.mu.Unlock()
	if err := errors.Join(err, b.Close()); err != nil {
		result.addf("%v", err)
	}
	if failure := failed.Load(); failure != nil {
		result.addf("it failed: %v", *failure)
	}
	if taken > 0 {
		e.crash(&e.images[first+e.rng.IntN(taken)])
	}
}

// crash makes an image the disk of the next generation.
func (e *crashEnv) crash(image *crashImage) {
	e.disk = storetest.DiskFrom(image.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(e.seed, 2))}))
	e.models.mu.Lock()
	for n := range image.models {
		*e.models.queues[n] = image.models[n]
		e.models.queues[n].messages = append([]crashMessage(nil), image.models[n].messages...)
	}
	e.models.mu.Unlock()
	if e.chance(3) {
		e.clock = crashClock{id: e.clock.id + "+", start: time.Now(), base: time.Minute, set: time.Now()}
	}
}

// adoptFound records the state that a crash has left.
func (e *crashEnv) adoptFound(b *Backend, result *crashResult) error {
	var found [][]crashFound
	for _, model := range e.models.queues {
		var content crashContent
		if err := content.look(e.ctx, b, model); err != nil {
			return err
		}
		found = append(found, result.checkLook(model, &content, time.Now()))
		e.models.mu.Lock()
		model.pause = crashPause{paused: content.paused}
		e.models.mu.Unlock()
	}
	e.models.rebase(found)
	return nil
}

func (e *crashEnv) configure(b *Backend) error {
	for _, model := range e.models.queues {
		if model.moves {
			if err := b.ConfigureQueue(e.ctx, model.beside(), model.config.Effective()); err != nil {
				return err
			}
		}
		if err := b.ConfigureQueue(e.ctx, model.name, model.config.Effective()); err != nil {
			return err
		}
		e.models.mu.Lock()
		model.configured = true
		e.models.mu.Unlock()
		e.cutAfterAnswer()
	}
	return nil
}

// load lets clients work.
func (e *crashEnv) load(b *Backend, generation int) error {
	var queues []crashQueue
	for _, model := range e.models.queues {
		q, err := b.OpenQueue(e.ctx, model.name)
		if err != nil {
			return err
		}
		opened := crashQueue{model: model, queue: q}
		if name := model.beside(); name != "" {
			if opened.beside, err = b.OpenQueue(e.ctx, name); err != nil {
				return err
			}
		}
		queues = append(queues, opened)
	}
	clients := 1 + int(e.seed)%4
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for n := range clients {
		c := &crashClient{env: e, ctx: e.ctx, steps: e.steps / clients, rng: rand.New(rand.NewPCG(e.seed, uint64(100+10*generation+n)))}
		wg.Go(func() { errs[n] = c.work(queues) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
