package engine

// groupHeap is a heap of groups by turn, each with four children. The turns are in the heap itself,
// and a group that moves is written once a level, so a change reads few groups: with ten thousand
// of them, each is a cache miss.
type groupHeap []heapSlot

type heapSlot struct {
	turn  turn
	group *group
}

// heapKind tells the heaps apart in which one group may be. It is an argument, and not a field, so
// that shards stay small.
type heapKind uint8

const (
	eligibleHeap heapKind = iota // see groups.eligible
	wakeHeap                     // see groupLimits.wakes
	heapKinds
)

const heapChildren = 4

// turn is the position of a group in a heap.
type turn struct {
	out    int
	place  uint64
	served uint64 // when it was last served; 0: never
}

func (t turn) before(u turn) bool {
	if t.out != u.out {
		return t.out < u.out
	}
	if t.place != u.place {
		return t.place < u.place
	}
	return t.served < u.served
}

// first returns the group with the lowest turn of a heap that is not empty, and its turn.
func (h groupHeap) first() (*group, turn) { return h[0].group, h[0].turn }

// turnOf returns the turn of a group, if it is there.
func (h groupHeap) turnOf(kind heapKind, g *group) (at turn, ok bool) {
	if i := g.position[kind]; i > 0 {
		return h[i-1].turn, true
	}
	return turn{}, false
}

// put puts a group into the heap, or moves it there, by its turn.
func (h *groupHeap) put(kind heapKind, g *group, at turn) {
	i := int(g.position[kind]) - 1
	switch {
	case i < 0:
		*h = append(*h, heapSlot{})
		i = len(*h) - 1
	case (*h)[i].turn == at:
		return
	}
	h.fill(kind, i, heapSlot{at, g})
}

// remove takes a group out of the heap, if it is there.
func (h *groupHeap) remove(kind heapKind, g *group) {
	i, last := int(g.position[kind])-1, len(*h)-1
	if i < 0 {
		return
	}
	moved := (*h)[last]
	(*h)[last] = heapSlot{}
	*h = (*h)[:last]
	if i < last {
		h.fill(kind, i, moved)
	}
	g.position[kind] = 0
}

// fill puts a slot where it belongs: into the gap at i, or above or below it.
func (h groupHeap) fill(kind heapKind, i int, slot heapSlot) {
	for i > 0 {
		parent := (i - 1) / heapChildren
		if !slot.turn.before(h[parent].turn) {
			break
		}
		h.set(kind, i, h[parent])
		i = parent
	}
	for {
		first := heapChildren*i + 1
		if first >= len(h) {
			break
		}
		least := first
		for child := first + 1; child < min(first+heapChildren, len(h)); child++ {
			if h[child].turn.before(h[least].turn) {
				least = child
			}
		}
		if !h[least].turn.before(slot.turn) {
			break
		}
		h.set(kind, i, h[least])
		i = least
	}
	h.set(kind, i, slot)
}

func (h groupHeap) set(kind heapKind, i int, slot heapSlot) {
	h[i] = slot
	slot.group.position[kind] = int32(i + 1)
}
