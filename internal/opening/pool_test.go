package opening

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// poolBackend counts how many of its kind are open.
type poolBackend struct {
	driver.Opener
	open    *atomic.Int32
	closing time.Duration // how long Close takes
}

func (b *poolBackend) Close() error {
	<-time.After(b.closing)
	b.open.Add(-1)
	return nil
}

// counting returns a function that opens a backend after a time, and fails the test if
// another is open.
func counting(t *testing.T, open *atomic.Int32, opening, closing time.Duration) func(context.Context) (driver.Backend, error) {
	return func(ctx context.Context) (driver.Backend, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(opening):
		}
		if n := open.Add(1); n != 1 {
			t.Errorf("%d backends of one key are open", n)
		}
		return &poolBackend{open: open, closing: closing}, nil
	}
}

func TestPoolOpensOnceAndClosesWithLastUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool Pool
		var open atomic.Int32
		var users sync.WaitGroup
		for i := range 20 {
			users.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond) // while it is opened, used and closed
				backend, release, err := pool.Acquire(t.Context(), "key", counting(t, &open, time.Second, time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(i%3) * time.Second)
				if backend == nil || open.Load() != 1 {
					t.Errorf("backend %v, %d are open", backend, open.Load())
				}
				if err := errors.Join(release(), release()); err != nil {
					t.Error(err)
				}
			})
		}
		users.Wait()
		if open.Load() != 0 || pool.Len() != 0 {
			t.Errorf("%d backends are open, %d are in the pool", open.Load(), pool.Len())
		}
	})
}

func TestPoolUserWaitsForBackendThatIsClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool Pool
		var open atomic.Int32
		opener := counting(t, &open, time.Second, time.Minute)
		_, release, err := pool.Acquire(t.Context(), "key", opener)
		if err != nil {
			t.Fatal(err)
		}
		var closing sync.WaitGroup
		closing.Go(func() { _ = release() })
		synctest.Wait()
		_, release, err = pool.Acquire(t.Context(), "key", opener) // fails the test if both are open
		if err != nil {
			t.Fatal(err)
		}
		closing.Wait()
		if err := release(); err != nil || open.Load() != 0 || pool.Len() != 0 {
			t.Errorf("%v, %d backends are open, %d are in the pool", err, open.Load(), pool.Len())
		}
	})
}

func TestPoolCancelledUserLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool Pool
		var open atomic.Int32
		opener := counting(t, &open, 10*time.Second, time.Second)
		var users sync.WaitGroup
		for i := range 5 {
			users.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				if _, _, err := pool.Acquire(ctx, "key", opener); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("user %d: %v", i, err)
				}
			})
		}
		users.Wait()
		if open.Load() != 0 || pool.Len() != 0 {
			t.Errorf("%d backends are open, %d are in the pool", open.Load(), pool.Len())
		}
	})
}

func TestPoolCancelledUserDoesNotWaitForClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool Pool
		var open atomic.Int32
		opener := counting(t, &open, 0, time.Minute)
		_, release, err := pool.Acquire(t.Context(), "key", opener)
		if err != nil {
			t.Fatal(err)
		}
		var closing sync.WaitGroup
		closing.Go(func() { _ = release() })
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := pool.Acquire(ctx, "key", opener); err != context.DeadlineExceeded || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want the context's error when it ended", err, time.Since(start))
		}
		closing.Wait()
		if open.Load() != 0 || pool.Len() != 0 {
			t.Errorf("%d backends are open, %d are in the pool", open.Load(), pool.Len())
		}
	})
}

func TestPoolFailedOpenIsTriedAgain(t *testing.T) {
	var pool Pool
	var open atomic.Int32
	broken := errors.New("broken")
	fail := func(context.Context) (driver.Backend, error) { return nil, broken }
	if _, _, err := pool.Acquire(t.Context(), "key", fail); err != broken {
		t.Errorf("got %v, want the error as it is", err)
	}
	_, release, err := pool.Acquire(t.Context(), "key", counting(t, &open, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil || pool.Len() != 0 {
		t.Errorf("%v, %d are in the pool", err, pool.Len())
	}
}

func TestPoolOpensAgainAfterOpenPanicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool Pool
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of open was lost")
				}
			}()
			_, _, _ = pool.Acquire(t.Context(), "key", func(context.Context) (driver.Backend, error) { panic("broken") })
		}()
		if n := pool.Len(); n != 0 {
			t.Errorf("%d backends are open", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var open atomic.Int32
		_, release, err := pool.Acquire(ctx, "key", counting(t, &open, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := release(); err != nil || open.Load() != 0 {
			t.Errorf("%v, %d are open", err, open.Load())
		}
	})
}

func TestPoolIsBoundedAndCloses(t *testing.T) {
	pool := Pool{Max: 2}
	var first, second, kept atomic.Int32
	_, release, err := pool.Acquire(t.Context(), "first", counting(t, &first, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	kept.Add(1)
	if err := pool.Share("kept", &poolBackend{open: &kept}); err != nil {
		t.Fatal(err)
	}
	if err := pool.Share("first", &poolBackend{open: &kept}); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("sharing an open key: got %v", err)
	}
	_, _, err = pool.Acquire(t.Context(), "second", counting(t, &second, 0, 0))
	if !errors.Is(err, driver.ErrFull) || driver.RetryAfter(err) <= 0 {
		t.Errorf("a third backend: got %v", err)
	}
	_, releaseKept, err := pool.Acquire(t.Context(), "kept", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
	if first.Load() != 0 || kept.Load() != 1 {
		t.Errorf("after Close %d backends are open, and %d of the shared one", first.Load(), kept.Load())
	}
	if err := errors.Join(release(), releaseKept()); err != nil || first.Load() != 0 || kept.Load() != 1 {
		t.Errorf("released after Close: %v", err)
	}
	if _, _, err := pool.Acquire(t.Context(), "first", nil); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a closed pool: got %v", err)
	}
}
