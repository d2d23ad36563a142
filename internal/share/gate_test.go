package share_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

func TestGateServesQuietTenantBeforeCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.NewGate(share.New("work", "units", 8, time.Second), time.Hour)
		var done sync.WaitGroup
		for range 1000 {
			done.Go(func() {
				owner := of("crowd", 1)
				if err := g.Enter(t.Context(), owner, 1); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				g.Leave(owner, 1)
			})
		}
		synctest.Wait()
		for range 10 {
			began := time.Now()
			owner := of("quiet", 1)
			if err := g.Enter(t.Context(), owner, 1); err != nil {
				t.Fatal(err)
			}
			g.Leave(owner, 1)
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("a quiet tenant waited %v", waited)
			}
			time.Sleep(time.Second)
		}
		done.Wait()
		if s := g.Stats(); s.Used != 0 || s.Owners != 0 {
			t.Errorf("at the end: %+v", s)
		}
	})
}

func TestGateRefusesAfterItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.NewGate(share.New("work", "units", 1, time.Second), time.Minute)
		a := of("a", 1)
		if err := g.Enter(t.Context(), a, 1); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := g.Enter(t.Context(), a, 1); !errors.Is(err, driver.ErrFull) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Enter(ctx, a, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the caller gave up: %v", err)
		}
		waited := make(chan error)
		go func() { waited <- g.Enter(t.Context(), of("b", 1), 1) }()
		synctest.Wait()
		g.Leave(a, 1)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		g.Leave(of("b", 1), 1)
		if s := g.Stats(); s.Used != 0 {
			t.Errorf("%d units are in use", s.Used)
		}
	})
}

func TestWaitingAtGateCountsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.NewGate(share.New("work", "units", 1, time.Second), time.Minute)
		a, b := of("a", 1), of("b", 1)
		if err := g.Enter(t.Context(), a, 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := g.Enter(t.Context(), b, 1); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		g.Leave(a, 1)
		synctest.Wait()
		if s := g.Stats(); s.Used != 1 || s.Refusals != 0 {
			t.Errorf("after one waited: %+v", s)
		}
		if err := g.Enter(t.Context(), a, 1); !errors.Is(err, driver.ErrFull) || g.Stats().Refusals != 1 {
			t.Errorf("after its patience: %v, %+v", err, g.Stats())
		}
	})
}

func TestGateUnderParallelUseLosesNoUnit(t *testing.T) {
	g := share.NewGate(share.New("work", "units", 64, time.Second), time.Second)
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			owner := of(string(rune('a'+worker%4)), byte(worker))
			for i := range 2000 {
				n := int64(1 + i%2)
				if g.Enter(t.Context(), owner, n) == nil {
					if used := g.Stats().Used; used > 64 {
						t.Errorf("%d units are in use", used)
					}
					g.Leave(owner, n)
				}
			}
		})
	}
	all.Wait()
	if s := g.Stats(); s.Used != 0 {
		t.Errorf("%d units are in use at the end", s.Used)
	}
}

// TestAdmittedCrowdRunsOneAfterAnother admits a thousand at once: each lets in the
// next when it runs, so that the scheduler never has all of them to run.
func TestAdmittedCrowdRunsOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.NewGate(share.New("work", "units", 8000, time.Second), time.Hour)
		first := of("crowd", 1)
		if err := g.Enter(t.Context(), first, 6125); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if err := g.Enter(t.Context(), of("crowd", 1), 2); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		g.Leave(first, 6125)
		if admitted := g.Stats().Used / 2; admitted > 1 {
			t.Errorf("%d were admitted at once", admitted)
		}
		all.Wait()
		if used := g.Stats().Used; used != 2000 {
			t.Errorf("%d units are in use", used)
		}
	})
}
