package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestTurnsAgreeWithModel serves, settles and removes groups of a few hundred, and compares the next
// one with the lowest turn of all.
func TestTurnsAgreeWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := groups{eligible: &turns{first: 1, end: 1}}
		want := make(map[*group]turn)
		clock := uint64(0)
		known := make([]*group, rapid.IntRange(1, 300).Draw(t, "groups"))
		for i := range known {
			known[i] = all.get(fmt.Sprint(i))
		}
		put := func(g *group, its turn) {
			all.eligible.put(g, its)
			want[g] = its
		}
		pick := func() *group { return rapid.SampledFrom(known).Draw(t, "group") }
		for range rapid.IntRange(1, 2000).Draw(t, "steps") {
			clock++
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0: // it was received from, and has others in flight
				put(pick(), turn{out: rapid.IntRange(1, 3).Draw(t, "out"), place: clock})
			case 1: // it comes back to an earlier turn
				back := uint64(rapid.SampledFrom([]int{1, 5, maxShift, 1000}).Draw(t, "back"))
				put(pick(), turn{place: clock - min(back, clock), served: clock})
			case 2, 3:
				g := pick()
				all.eligible.remove(g)
				delete(want, g)
			case 4, 5: // the next one is served
				if g, _ := all.eligible.next(); g != nil {
					put(g, turn{place: clock})
				}
			default:
				put(pick(), turn{place: clock})
			}
			if err := all.checkTurns(); err != nil {
				t.Fatal(err)
			}
			g, its := all.eligible.next()
			if (g == nil) != (len(want) == 0) || all.eligible.len() != len(want) || g != nil && want[g] != its {
				t.Fatalf("the next group has turn %+v, want %+v; %d groups, want %d", its, want[g], all.eligible.len(), len(want))
			}
			for _, other := range want {
				if other.before(its) {
					t.Fatalf("turn %+v is before the next one, %+v", other, its)
				}
			}
		}
	})
}

// TestServedGroupsLeaveTheHeapEmpty: groups that take turns, and settle a little out of order, are in
// the list, so that a receive moves none.
func TestServedGroupsLeaveTheHeapEmpty(t *testing.T) {
	t.Parallel()
	all := groups{eligible: &turns{first: 1, end: 1}}
	clock := uint64(0)
	for i := range 1000 {
		clock++
		all.eligible.put(all.get(fmt.Sprint(i)), turn{place: clock})
	}
	for range 5000 {
		var served []*group
		for range maxShift {
			g, _ := all.eligible.next()
			all.eligible.remove(g)
			served = append(served, g)
		}
		for i := range served {
			all.eligible.put(served[len(served)-1-i], turn{place: clock + uint64(len(served)-i)})
		}
		clock += maxShift
	}
	if slots := len(all.eligible.list); len(all.eligible.heap) > 0 || slots > 2048 {
		t.Errorf("%d groups are in the heap, and the list has %d slots", len(all.eligible.heap), slots)
	}
	if err := all.checkTurns(); err != nil {
		t.Error(err)
	}
}
