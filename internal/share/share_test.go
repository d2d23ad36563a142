package share_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// of names an owner by tenant and token.
func of(tenant string, token byte) share.Path {
	return share.Path{{Name: tenant}, {ID: [16]byte{token}}}
}

// fill takes single units until that is refused, and returns how many it got.
func fill(p *share.Pool, owner share.Path) (n int64) {
	for p.Take(owner, 1) == nil {
		n++
	}
	return n
}

func TestLoneOwnerLeavesReserveOfOneEighth(t *testing.T) {
	for _, c := range []struct{ limit, want int64 }{
		{1, 1}, {2, 2}, {7, 7}, {8, 7}, {16, 14}, {1000, 875},
	} {
		p := share.New("test", "units", c.limit, time.Second)
		if got := fill(p, share.Path{{Name: "a"}}); got != c.want {
			t.Errorf("of %d a lone owner got %d, want %d", c.limit, got, c.want)
		}
	}
	p := share.New("test", "units", 6400, time.Second)
	if got := fill(p, of("a", 1)); got != 4900 {
		t.Errorf("a lone token of a lone tenant got %d of 6400, want 7/8 of 7/8", got)
	}
}

func TestSecondOwnerFindsReserveAndFirstIsHalved(t *testing.T) {
	p := share.New("test", "units", 1600, time.Second)
	a, b, c := share.Path{{Name: "a"}}, share.Path{{Name: "b"}}, share.Path{{Name: "c"}}
	had := fill(p, a)
	if got := fill(p, b); got != 100 {
		t.Errorf("the second owner got %d, want half of the reserve", got)
	}
	if got := fill(p, c); got != 50 {
		t.Errorf("the third owner got %d, want half of what was left", got)
	}
	p.Give(a, had-700)
	if got := fill(p, a); got != 100 {
		t.Errorf("the first owner went from 700 to %d, want 800: half", 700+got)
	}
	p.Give(a, 800)
	if got := fill(p, b); got != 700 {
		t.Errorf("the second owner went from 100 to %d, want 800: half", 100+got)
	}
}

func TestTokensOfTenantShareItsPart(t *testing.T) {
	p := share.New("test", "units", 1000, time.Second)
	fill(p, of("a", 1))
	if got := fill(p, of("a", 2)); got < 30 {
		t.Errorf("beside a greedy token its sibling got %d", got)
	}
	if got := fill(p, of("b", 1)); got < 30 {
		t.Errorf("beside a greedy tenant another got %d", got)
	}
}

func TestAskingAloneMakesOwnerActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := share.New("test", "units", 800, time.Second)
		a, b := share.Path{{Name: "a"}}, share.Path{{Name: "b"}}
		if err := p.Take(b, 1); err != nil {
			t.Fatal(err)
		}
		p.Give(b, 1)
		if got := fill(p, a); got != 400 {
			t.Errorf("beside an active owner one got %d of 800", got)
		}
		time.Sleep(share.ActiveFor)
		if got := fill(p, a); got != 300 {
			t.Errorf("when the other was gone it got %d more, want 300", got)
		}
	})
}

func TestRefusalNamesShareAndLimit(t *testing.T) {
	p := share.New("in-flight", "global_inflight", 16, 3*time.Second)
	fill(p, of("a", 1))
	fill(p, of("a", 2))
	const want = `in-flight share of tenant "a" used up: 14 of 14 (global_inflight 16)`
	e, _ := errors.AsType[*driver.Error](p.Take(of("a", 1), 1))
	if e == nil || e.Code != driver.ErrFull || e.RetryAfter != 3*time.Second || e.Detail != want {
		t.Errorf("got %v, want %s", e, want)
	}
	if s := p.Stats(); s.Refusals != 3 || s.Owners != 1 || s.Used != 14 || s.Limit != 16 {
		t.Errorf("the figures are %+v", s)
	}
}

func TestWaitingReceiversTakeLess(t *testing.T) {
	p := share.New("test", "units", 800, time.Second)
	a := share.Path{{Name: "a"}}
	if n, err := p.TakeUpTo(a, 1000, 0); n != 700 || err != nil {
		t.Errorf("took %d, %v", n, err)
	}
	p.Give(a, 700)
	if n, err := p.TakeUpTo(a, 1000, 10); n != 35 || err != nil {
		t.Errorf("one of ten that wait took %d, %v", n, err)
	}
	p.Give(a, 35)
	p.Take(a, 699)
	if n, err := p.TakeUpTo(a, 1000, 10); n != 1 || err != nil {
		t.Errorf("with one left it took %d, %v", n, err)
	}
	if n, err := p.TakeUpTo(a, 1000, 10); n != 0 || !errors.Is(err, driver.ErrFull) {
		t.Errorf("with nothing left it took %d, %v", n, err)
	}
}

func TestMoveKeepsUnitsWhereTheyFit(t *testing.T) {
	p := share.New("test", "units", 10, time.Second)
	a, b := share.Path{{Name: "a"}}, share.Path{{Name: "b"}}
	fill(p, b)
	if err := p.Take(a, 1); err != nil {
		t.Fatal(err)
	}
	if err := p.Move(a, b, 1); !errors.Is(err, driver.ErrFull) {
		t.Errorf("moving to a full share: %v", err)
	}
	p.Give(b, 5)
	if err := p.Move(a, b, 1); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Owners != 1 || s.Used != 5 {
		t.Errorf("after the move: %+v", s)
	}
}

func TestIdleOwnersAreForgotten(t *testing.T) {
	volume.Repeats(t)
	p := share.New("test", "units", 1000, time.Second)
	for i := range volume.Of(100_000) {
		owner := of("a", 0)
		owner[1].Name = fmt.Sprint(i)
		if err := p.Take(owner, 1); err != nil {
			t.Fatal(err)
		}
		p.Give(owner, 1)
	}
	if n := p.Remembered(); n > 1000 {
		t.Errorf("%d owners are remembered that hold nothing", n)
	}
}

// TestLimitHoldsUnderParallelTakes takes and gives at random and compares with plain counts.
func TestLimitHoldsUnderParallelTakes(t *testing.T) {
	volume.Repeats(t)
	const limit = 200
	p := share.New("test", "units", limit, time.Second)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			owner := of(string(rune('a'+worker%3)), byte(worker))
			held := int64(0)
			for range volume.Of(20_000) {
				if random.IntN(2) == 0 {
					n, _ := p.TakeUpTo(owner, int64(random.IntN(20)+1), random.IntN(3))
					held += n
				} else if held > 0 {
					n := random.Int64N(held) + 1
					p.Give(owner, n)
					held -= n
				}
				if s := p.Stats(); s.Used > limit || s.Used < 0 {
					t.Errorf("%d of %d are used", s.Used, limit)
					return
				}
			}
			p.Give(owner, held)
		})
	}
	group.Wait()
	if s := p.Stats(); s.Used != 0 || s.Owners != 0 {
		t.Errorf("after everything was given back: %+v", s)
	}
}

func TestTakingAllocatesNothing(t *testing.T) {
	p := share.New("test", "units", 1000, time.Second)
	id := [16]byte{1}
	if n := testing.AllocsPerRun(100, func() {
		owner := [2]share.Key{{Name: "a"}, {ID: id}}
		if n, err := p.TakeUpTo(owner[:], 10, 1); err == nil {
			p.Give(owner[:], n)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a take", n)
	}
}

func BenchmarkTake(b *testing.B) {
	p := share.New("test", "units", 1000, time.Second)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			owner := [2]share.Key{{Name: "a"}, {ID: [16]byte{1}}}
			if n, err := p.TakeUpTo(owner[:], 10, 0); err == nil {
				p.Give(owner[:], n)
			}
		}
	})
}

func TestCrowdedPoolHasFewerUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := share.New("work", "units", 64, time.Second)
		p.SetCrowded(16)
		most := func(owner share.Path) (n int) {
			for p.Take(owner, 1) == nil {
				n++
			}
			p.Give(owner, int64(n))
			return n
		}
		if n := most(of("a", 1)); n != 49 { // a token of a lone tenant
			t.Errorf("a lone tenant has %d", n)
		}
		if n := most(of("b", 1)); n != 7 { // a token of one of two tenants
			t.Errorf("the second of two tenants has %d", n)
		}
		if n := most(of("a", 1)); n != 7 {
			t.Errorf("the first of two tenants has %d", n)
		}
		time.Sleep(share.ActiveFor)
		if n := most(of("a", 1)); n != 49 {
			t.Errorf("a tenant that is alone again has %d", n)
		}
	})
}
