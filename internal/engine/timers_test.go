package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTimersFireInOrder: young and old timers fire as if they were in one heap, whatever is
// removed or moved meanwhile.
func TestTimersFireInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var set timers
	var want []*Entry
	for seq := range uint64(20_000) {
		switch n := len(want); {
		case n == 0 || n < 5*maxYoung && random.IntN(3) > 0:
			e := &Entry{Seq: seq, Due: Instant(random.IntN(1000)), timerIndex: -1}
			set.push(e)
			want = append(want, e)
		case random.IntN(4) == 0:
			e := want[random.IntN(n)]
			e.Due = Instant(random.IntN(1000))
			set.fix(e)
		default:
			i := random.IntN(n)
			if random.IntN(2) == 0 {
				i = slices.Index(want, set.first())
			}
			set.remove(want[i])
			if got := want[i].timerIndex; got != -1 {
				t.Fatalf("a removed timer has index %d", got)
			}
			want = slices.Delete(want, i, i+1)
		}
		if err := set.check(false); err != nil || set.len() != len(want) {
			t.Fatalf("step %d: %d timers, want %d: %v", seq, set.len(), len(want), err)
		}
		if len(want) == 0 {
			continue
		}
		first := slices.MinFunc(want, func(a, b *Entry) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq)) })
		if got := set.first(); got != first {
			t.Fatalf("step %d: message %d fires first at %d, want %d at %d", seq, got.Seq, got.Due, first.Seq, first.Due)
		}
	}
	held := make(map[*Entry]bool)
	for e := range set.all {
		held[e] = true
	}
	if len(held) != len(want) {
		t.Fatalf("%d timers of %d", len(held), len(want))
	}
}

// TestShortLeaseLeavesOldTimersAlone: its timer moves none of a million delays.
func TestShortLeaseLeavesOldTimersAlone(t *testing.T) {
	var set timers
	for seq := range uint64(10 * maxYoung) {
		set.push(&Entry{Seq: seq, Due: 1000, timerIndex: -1})
	}
	before := slices.Clone(*set.old)
	for seq := range uint64(maxYoung - len(set.young)) {
		e := &Entry{Seq: seq, Due: 1, timerIndex: -1}
		set.push(e)
		if set.first() != e {
			t.Fatal("it does not fire first")
		}
		set.remove(e)
	}
	if !slices.Equal(before, *set.old) {
		t.Error("old timers moved")
	}
}
