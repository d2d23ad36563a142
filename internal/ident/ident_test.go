package ident

import (
	"testing"
	"time"
)

func TestIdsGrowStrictly(t *testing.T) {
	s := NewSource()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	walls := []int64{now, now, now + 1e6, now - 1e9, now, now + 2e6, -5, now + 3e6}
	previous := ""
	for i, wall := range walls {
		var text [TextLen]byte
		id := s.Next(wall)
		Encode(id, text[:])
		if got := string(text[:]); got <= previous {
			t.Fatalf("id %d is %s, not after %s", i, got, previous)
		} else {
			previous = got
		}
		back, err := Parse(previous)
		if err != nil || back != id {
			t.Fatalf("Parse(%s) = %v, %v", previous, back, err)
		}
	}
}

func TestIdsCarryTheirTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	if got := NewSource().Next(now.UnixNano()); !got.Timestamp().Equal(now) {
		t.Fatalf("id carries %v, want %v", got.Timestamp(), now)
	}
}

func BenchmarkNext(b *testing.B) {
	s := NewSource()
	var text [TextLen]byte
	wall := time.Now().UnixNano()
	for b.Loop() {
		wall += 1000
		Encode(s.Next(wall), text[:])
	}
}
