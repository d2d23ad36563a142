package diskbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A faultRun is a short run in which one operation on the disk fails.
type faultRun struct {
	*crashEnv
	fails   atomic.Int64 // how often OnFail was called
	injured atomic.Bool  // the fault has happened
	opened  bool
}

// newFaultRun makes the n-th operation of a kind fail.
func newFaultRun(t *testing.T, kind storetest.Kind, n int) *faultRun {
	var budget atomic.Int64                                                         // no images
	r := &faultRun{crashEnv: newCrashEnv(t.Context(), 4, &budget, &crashSummary{})} // one client
	r.kinds, r.steps = []int{0, 2, 4}, 150
	r.halt = make(chan struct{})
	r.prepare()
	var seen atomic.Int64
	r.disk.Before(func(op storetest.Operation) error {
		if op.Kind != kind || seen.Add(1) != int64(n) {
			return nil
		}
		r.injured.Store(true)
		return syscall.EIO
	})
	return r
}

// run runs until the end or the first failure, which it returns, and checks that no call
// succeeds after it.
func (r *faultRun) run() (failure, wrong error) {
	b, err := r.open(r.disk.FS(), &r.clock, func(error) {
		if r.fails.Add(1) == 1 {
			close(r.halt)
		}
	})
	if err != nil {
		return err, nil
	}
	r.opened = true
	failure = errors.Join(r.configure(b), r.load(b, 0))
	if failure == nil {
		r.elapse(time.Minute) // background work
		failure = b.Ping(r.ctx)
	}
	if failure != nil {
		wrong = r.checkAllFail(b)
	}
	if err := b.Close(); failure == nil {
		failure = err
	}
	synctest.Wait() // for OnFail
	return failure, wrong
}

// checkAllFail returns an error for a call that succeeds although the disk has failed.
func (r *faultRun) checkAllFail(b *Backend) error {
	ctx := r.ctx
	q, err := b.OpenQueue(ctx, r.models.queues[0].name)
	if err != nil {
		return nil // so are the other calls
	}
	// With a valid lease, an ack has no other reason to fail.
	receipt := driver.Receipt{Handle: "x", Place: 1, Nonce: 1}
	if got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err == nil && len(got) > 0 {
		receipt = got[0].Receipt
	}
	for call, do := range map[string]func() error{
		"ping": func() error { return b.Ping(ctx) },
		"send": func() error {
			_, err := q.Send(ctx, []driver.Outgoing{{Body: []byte("99999 after the failure")}})
			return err
		},
		"send with a key": func() error {
			_, err := q.Send(ctx, []driver.Outgoing{{Body: []byte("99999 after the failure"), DedupKey: "key"}})
			return err
		},
		"ack":  func() error { return q.Ack(ctx, []driver.Receipt{receipt}) },
		"nack": func() error { return q.Nack(ctx, []driver.Nack{{Receipt: receipt}}) },
		"dead-letter": func() error {
			return q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: receipt, Reason: driver.ReasonFatal}})
		},
		"discard":    func() error { _, err := q.Discard(ctx, []string{"x"}); return err },
		"purge":      func() error { _, err := q.Purge(ctx); return err },
		"purge dead": func() error { _, err := q.PurgeDead(ctx); return err },
		"configure":  func() error { return b.ConfigureQueue(ctx, "another", driver.Config{}) },
		"delete":     func() error { return b.DeleteQueue(ctx, r.models.queues[0].name) },
	} {
		if do() == nil {
			return fmt.Errorf("%s succeeds after the disk has failed", call)
		}
	}
	return nil
}

// check checks how the failure was reported, and what it left on the disk.
func (r *faultRun) check(failure error, mustTell bool) error {
	isDriver := func(err error) bool { _, ok := errors.AsType[*driver.Error](err); return ok }
	switch {
	case failure != nil && !isDriver(failure):
		return fmt.Errorf("%T is not a *driver.Error: %w", failure, failure)
	case r.opened && failure != nil && !errors.Is(failure, driver.ErrUnavailable):
		return fmt.Errorf("not ErrUnavailable: %w", failure)
	case mustTell && r.injured.Load() && failure == nil:
		return errors.New("OnFail was not called")
	case r.opened && failure != nil && r.fails.Load() != 1, failure == nil && r.fails.Load() != 0:
		return fmt.Errorf("OnFail was called %d times for %w", r.fails.Load(), failure)
	}
	r.disk.Before(func(storetest.Operation) error { return nil })
	for name, unsynced := range map[string]int{"with what was synced": 0, "with all that was written": 100} {
		rng := rand.New(rand.NewPCG(1, 1))
		now := r.clock
		now.base = now.uptime()
		image := &crashImage{
			mem:    r.disk.Mem().CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng}),
			models: r.models.snapshotLocked(), at: time.Now(), clock: now,
		}
		result := r.result(image, nil, rng)
		if err := result.err(); err != nil {
			return fmt.Errorf("opened again %s, after %v: %w", name, failure, err)
		}
	}
	return nil
}

func TestFailedDiskOperationIsReportedAndLosesNothing(t *testing.T) {
	volume.Repeats(t)
	stride := volume.Stride(29)
	for _, kind := range []storetest.Kind{
		storetest.Write, storetest.Sync, storetest.SyncDir, storetest.Create, storetest.Rename, storetest.Reuse, storetest.Remove,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			happened := 0
			for n := 1; ; n += stride {
				injured := false
				synctest.Test(t, func(t *testing.T) {
					r := newFaultRun(t, kind, n)
					failure, wrong := r.run()
					injured = r.injured.Load()
					if err := errors.Join(wrong, r.check(failure, kind != storetest.Remove)); err != nil {
						t.Errorf("%s number %d: %v", kind, n, err)
					}
				})
				if !injured || t.Failed() {
					break // the run ended before
				}
				happened++
			}
			t.Logf("%d operations failed, one at a time", happened)
			if happened == 0 && kind != storetest.Reuse {
				t.Error("no operation failed")
			}
		})
	}
}

// setUsage sets the free space of a disk, and waits until the store has read it.
func setUsage(disk *storetest.Disk, free uint64) {
	const total = 100 << 30
	disk.Mem().TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: total, UsedBytes: total - free})
	elapse(time.Second)
}

// A diskUser sends and settles in small steps, and keeps a model.
type diskUser struct {
	t *testing.T
	crashClient
	crashQueue
}

func newDiskUser(t *testing.T, options *Options) (*diskUser, *Backend) {
	t.Helper()
	var budget atomic.Int64 // no images
	e := newCrashEnv(t.Context(), 4, &budget, &crashSummary{})
	e.kinds = []int{0}
	e.prepare()
	options.fs, options.boot, options.small = e.disk.FS(), &e.clock, true
	b, err := Open(t.Context(), crashDir, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.configure(b); err != nil {
		t.Fatal(err)
	}
	model := e.models.queues[0]
	q, err := b.OpenQueue(t.Context(), model.name)
	if err != nil {
		t.Fatal(err)
	}
	u := &diskUser{t: t, crashQueue: crashQueue{model: model, queue: q}}
	u.crashClient = crashClient{env: e, ctx: t.Context(), rng: rand.New(rand.NewPCG(1, 1)), held: make(map[*crashModel][]heldDelivery)}
	return u, b
}

// do fails the test for an error.
func (u *diskUser) do(what string, err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatalf("%s: %v", what, err)
	}
}

// fill sends a batch of n messages of a kilobyte each.
func (u *diskUser) fill(n int) error {
	var tokens []int
	var batch []driver.Outgoing
	for range n {
		out := driver.Outgoing{Body: fmt.Appendf(nil, "%d %s", len(u.model.messages), strings.Repeat("x", 1000))}
		tokens, batch = append(tokens, u.model.addLocked(out)), append(batch, out)
	}
	op := u.env.models.begin(u.model, opSend, tokens)
	sent, err := u.queue.Send(u.ctx, batch)
	if wrong := u.env.models.sent(op, sent, err); wrong != "" {
		u.t.Error(wrong)
	}
	return err
}

// expectAll opens the image of a power cut at this moment, and compares it with the model.
func (u *diskUser) expectAll() {
	u.t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	now := u.env.clock
	now.base = now.uptime()
	image := &crashImage{mem: u.env.disk.Mem().CrashClone(vfs.CrashCloneCfg{}), models: u.env.models.snapshotLocked(), at: time.Now(), clock: now}
	result := u.env.result(image, nil, rng)
	u.do("after a power cut", result.err())
}

// expectFull fails the test unless a send is refused for lack of space.
func (u *diskUser) expectFull(err error) {
	u.t.Helper()
	if !errors.Is(err, driver.ErrFull) || driver.RetryAfter(err) <= 0 || !strings.Contains(err.Error(), crashDir) || !strings.Contains(err.Error(), "free some space") {
		u.t.Fatalf("send to a full disk: %v", err)
	}
}

func TestNearlyFullDiskRefusesSendsAndSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, b := newDiskUser(t, &Options{OnFail: func(err error) { t.Errorf("it failed: %v", err) }})
		defer b.Close()
		setUsage(u.env.disk, 50<<30)
		u.do("send", u.fill(20))
		setUsage(u.env.disk, 100<<20)
		u.expectFull(u.fill(1))
		if err := b.Ping(t.Context()); !errors.Is(err, driver.ErrFull) {
			t.Errorf("ping: %v", err)
		}
		for range 30 { // receive, ack, nack, extend, dead-letter
			u.do("settle", u.settle(u.crashQueue))
			u.do("tend the dead", u.useDeadLetters(u.crashQueue))
		}
		u.expectFull(u.fill(1))
		u.expectAll()
		setUsage(u.env.disk, 50<<30)
		u.do("send when there is space again", u.fill(1))
		u.do("ping", b.Ping(t.Context()))
		u.expectAll()
	})
}

func TestHangingDiskFailsPingUntilItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, b := newDiskUser(t, &Options{OnFail: func(err error) { t.Errorf("it failed: %v", err) }})
		defer b.Close()
		var hangs atomic.Bool
		hangs.Store(true)
		u.env.disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync && hangs.CompareAndSwap(true, false) {
				time.Sleep(time.Minute)
			}
			return nil
		})
		sent := make(chan error, 1)
		go func() { sent <- u.fill(1) }()
		time.Sleep(30 * time.Second)
		if err := b.Ping(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "disk") {
			t.Errorf("ping: %v", err)
		}
		u.do("send", <-sent)
		u.do("ping", b.Ping(t.Context()))
	})
}

// A disk that is full because of another process has no room for tables. They wait, and the
// store continues when there is space.
func TestFullDiskWaitsForSpaceAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, b := newDiskUser(t, &Options{OnFail: func(err error) { t.Errorf("it failed: %v", err) }})
		defer b.Close()
		var full atomic.Bool
		u.env.disk.Before(func(op storetest.Operation) error {
			if full.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind != storetest.Remove {
				return syscall.ENOSPC
			}
			return nil
		})
		u.do("send", u.fill(5))
		full.Store(true)
		var err error
		for range 200 { // more than a table, which does not fit
			if err = u.fill(1); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		u.expectFull(err)
		for range 20 {
			u.do("settle", u.settle(u.crashQueue))
		}
		u.expectAll()
		full.Store(false)
		time.Sleep(10 * time.Second)
		u.do("send when there is space again", u.fill(20))
		u.expectAll()
	})
}

// warnings is a log handler that keeps warnings and errors.
type warnings struct {
	slog.Handler
	mu    sync.Mutex
	texts []string
}

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
	return nil
}

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w *warnings) mentions(parts ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.texts, func(text string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	})
}

func TestSlowDiskIsReportedAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &warnings{Handler: slog.DiscardHandler}
		u, b := newDiskUser(t, &Options{Logger: slog.New(log), OnFail: func(err error) { t.Errorf("it failed: %v", err) }})
		defer b.Close()
		u.do("send", u.fill(3))
		var slow atomic.Bool
		slow.Store(true)
		u.env.disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync && slow.CompareAndSwap(true, false) {
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		begin := time.Now()
		answered := make(chan error)
		go func() { answered <- u.fill(1) }()
		time.Sleep(5 * time.Second)
		if !log.mentions("slow disk", ".log", "sync") {
			t.Errorf("after five seconds there is no warning: %q", log.texts)
		}
		// Durable messages can be received in the meantime.
		op := u.env.models.begin(u.model, opReceive, nil)
		got, err := u.queue.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Second, Wait: time.Hour})
		if err != nil || len(got) != 3 {
			t.Fatalf("received %d messages, %v", len(got), err)
		}
		u.env.models.delivered(op, []int{0, 1, 2}, got)
		if waited := time.Since(begin); waited != 5*time.Second {
			t.Errorf("receiving took %v", waited-5*time.Second)
		}
		u.do("send on a slow disk", <-answered)
		if took := time.Since(begin); took < 10*time.Second {
			t.Errorf("it was answered after %v, before it was durable", took)
		}
		u.expectAll()
	})
}
