package ident

import (
	"testing"
	"time"
	"unsafe"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func next(s *Source, wall int64) string {
	var text [TextLen]byte
	s.Next(wall, text[:])
	return string(text[:])
}

func TestIdsGrowStrictly(t *testing.T) {
	s := NewSource()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	walls := []int64{now, now, now + 1e6, now - 1e9, now, now + 2e6, -5, now + 3e6}
	for range 5000 { // far enough to carry into the second and third character
		walls = append(walls, now+3e6)
	}
	previous := ""
	for i, wall := range walls {
		got := next(s, wall)
		if got <= previous {
			t.Fatalf("id %d is %s, not after %s", i, got, previous)
		}
		previous = got
		if back, err := Parse(got); err != nil || back.String() != got {
			t.Fatalf("Parse(%s) = %v, %v", got, back, err)
		}
	}
}

func TestAClockBeforeTheEpochMakesIdsToo(t *testing.T) {
	for _, wall := range []int64{-5, 0, 999_999} {
		var s Source
		first, second := next(&s, wall), next(&s, wall)
		for _, got := range []string{first, second} {
			if id, err := Parse(got); err != nil || id.Time() != 0 {
				t.Errorf("Parse(%q) of wall %d = %v, %v", got, wall, id, err)
			}
		}
		if second <= first {
			t.Errorf("%q is not after %q", second, first)
		}
	}
}

func TestASourceCostsNextToNothing(t *testing.T) {
	if size := unsafe.Sizeof(Source{}); size > 48 {
		t.Errorf("a source has %d bytes, and every shard of every queue has one", size)
	}
}

func TestCountingInTextIsCountingInNumbers(t *testing.T) {
	volume.Repeats(t)
	s := NewSource()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	first, err := Parse(next(s, now))
	if err != nil {
		t.Fatal(err)
	}
	for range volume.Of(100_000) {
		for i := len(first) - 1; ; i-- {
			if first[i]++; first[i] != 0 {
				break
			}
		}
		if got := next(s, now); got != first.String() {
			t.Fatalf("got %s, want %s", got, first)
		}
	}
}

func TestIdsCarryTheirTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	id, err := Parse(next(NewSource(), now.UnixNano()))
	if err != nil || !id.Timestamp().Equal(now) {
		t.Fatalf("id carries %v, want %v (%v)", id.Timestamp(), now, err)
	}
}

func BenchmarkNext(b *testing.B) {
	s := NewSource()
	var text [TextLen]byte
	wall := time.Now().UnixNano()
	for b.Loop() {
		wall += 1000
		s.Next(wall, text[:])
	}
}
