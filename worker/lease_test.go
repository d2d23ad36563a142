package worker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// held returns the jobs of a list in its order, and checks that it is one.
func (l *leases[T]) held(t *testing.T) []*job[T] {
	t.Helper()
	var all []*job[T]
	var previous *job[T]
	for j := l.first; j != nil; j = j.lease.next {
		if j.lease.previous != previous || !j.lease.listed {
			t.Fatal("the list is torn")
		}
		if previous != nil && previous.lease.due > j.lease.due {
			t.Fatal("the list is not in order")
		}
		all = append(all, j)
		previous = j
	}
	if l.last != previous || l.count != len(all) {
		t.Fatalf("the list ends elsewhere, or has %d and not %d", len(all), l.count)
	}
	return all
}

// LOOP-5: a lease taken at clock zero is one like any other.
func TestLeasesAtClockZeroAreExtendedInTime(t *testing.T) {
	const visibility = 30 * time.Second
	for _, zero := range []time.Duration{0, -time.Hour, time.Nanosecond} {
		l := newLeases[int](visibility, true)
		if _, found := l.next(); found {
			t.Error("there is something in an empty list")
		}
		j := &job[int]{}
		l.add(j, zero)
		if due, found := l.next(); !found || due != zero+visibility/3 {
			t.Errorf("taken at %v it is due at %v, %v", zero, due, found)
		}
		if extend, ended := l.take(zero); len(extend) != 0 || len(ended) != 0 {
			t.Errorf("at %v it is already due", zero)
		}
		if extend, ended := l.take(zero + visibility/3); len(extend) != 1 || len(ended) != 0 {
			t.Errorf("at %v: %d to extend, %d ended", zero+visibility/3, len(extend), len(ended))
		}
		l.add(j, zero+visibility/3)
		if j.lease.until != zero+visibility/3+visibility {
			t.Errorf("it was extended until %v", j.lease.until)
		}
		if extend, ended := l.take(zero + time.Hour); len(extend) != 0 || len(ended) != 1 {
			t.Errorf("long after its end: %d to extend, %d ended", len(extend), len(ended))
		}
	}
}

// LOOP-5: whenever a lease is extended, that makes it longer.
func TestExtendingNeverShortens(t *testing.T) {
	const visibility = 30 * time.Second
	random := rand.New(rand.NewPCG(1, 2))
	l := newLeases[int](visibility, true)
	var now time.Duration
	var jobs []*job[int]
	for range 20_000 {
		now += time.Duration(random.Int64N(int64(2 * time.Second)))
		switch random.IntN(6) {
		case 0:
			j := &job[int]{}
			l.add(j, now)
			jobs = append(jobs, j)
		case 1: // a handler asks for more
			if len(jobs) > 0 {
				j := jobs[random.IntN(len(jobs))]
				if until := now + time.Duration(random.Int64N(int64(time.Hour))); j.lease.listed && until > j.lease.until {
					l.remove(j)
					l.addUntil(j, until)
				}
			}
		case 2:
			if len(jobs) > 0 {
				i := random.IntN(len(jobs))
				l.remove(jobs[i])
				jobs = slices.Delete(jobs, i, i+1)
			}
		}
		extend, ended := l.take(now)
		for _, j := range extend {
			if now+visibility <= j.lease.until {
				t.Fatalf("extending at %v to %v would shorten a lease until %v", now, now+visibility, j.lease.until)
			}
			if random.IntN(4) == 0 {
				l.retry(j, now, 3*time.Second)
			} else {
				l.add(j, now)
			}
		}
		for _, j := range ended {
			if j.lease.until > now {
				t.Fatalf("a lease until %v ended at %v", j.lease.until, now)
			}
			jobs = slices.DeleteFunc(jobs, func(other *job[int]) bool { return other == j })
		}
		if len(l.held(t)) != len(jobs) {
			t.Fatalf("%d leases are listed, want %d", l.count, len(jobs))
		}
		if due, found := l.next(); found && due <= now {
			t.Fatalf("at %v something due at %v was left", now, due)
		}
	}
}

func TestRecentRemembersTheLatest(t *testing.T) {
	r := newRecent[int](3)
	for i, id := range []string{"a", "b", "c", "a", "d"} {
		r.put(id, i)
	}
	for id, want := range map[string]int{"a": -1, "b": 1, "c": 2, "d": 4} {
		value, ok := r.get(id)
		if ok != (want >= 0) || ok && value != want {
			t.Errorf("%s is %d, %v; want %d", id, value, ok, want)
		}
	}
	for _, id := range []string{"b", "c", "d", "d"} {
		r.forget(id)
	}
	if _, ok := r.get("d"); ok || r.count.Load() != 0 {
		t.Error("something that was forgotten is known")
	}
	for _, id := range []string{"x", "y", "z", "w"} {
		r.put(id, 0)
	}
	if r.count.Load() != 3 {
		t.Errorf("%d are remembered, want 3", r.count.Load())
	}
}

func TestBackoffGrowsToItsLimit(t *testing.T) {
	// DLQ-6: min(60 s × deliveries, 900 s).
	for deliveries, want := range map[int]time.Duration{
		-1: time.Minute, 0: time.Minute, 1: time.Minute, 2: 2 * time.Minute, 14: 14 * time.Minute,
		15: 15 * time.Minute, 16: 15 * time.Minute, 1 << 40: 15 * time.Minute,
	} {
		if got := DefaultBackoff(deliveries); got != want {
			t.Errorf("after %d deliveries %v, want %v", deliveries, got, want)
		}
	}
	if got := LinearBackoff(0, time.Minute)(1 << 50); got != 0 {
		t.Errorf("no step is %v", got)
	}
	exponential := ExponentialBackoff(time.Second, time.Minute)
	for deliveries, most := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		longest := time.Duration(0)
		for range 1000 {
			longest = max(longest, exponential(deliveries))
		}
		if longest > most || longest < most/2 {
			t.Errorf("after %d deliveries at most %v, want up to %v", deliveries, longest, most)
		}
	}
	if got := ExponentialBackoff(0, 0)(3); got != 0 {
		t.Errorf("nothing is %v", got)
	}
}
