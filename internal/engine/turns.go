package engine

// turns has the groups that can be received from, by their turns. A group that was served goes
// behind the others, so nearly every group with nothing in flight comes after those that are there.
// These are in a list, whose head goes next. A group that comes a little earlier, because
// receivers do not settle in the order in which they receive, moves the last few. Groups with
// messages in flight, and those that come much earlier, are in a heap beside the list.
//
// So a receive neither moves groups nor reads them, other than the one that it takes from: of ten
// thousand groups, each is a cache miss.
type turns struct {
	// list is a ring of slots: slot n is at n modulo its length, which is a power of two. A slot
	// without a group is one that left.
	list []heapSlot
	// first is the number of the first slot, from 1 on, and end that behind the last one. The first
	// and the last slot have a group.
	first, end uint64
	gone       int // slots without a group
	heap       groupHeap

	fetchedTo uint64 // the groups in slots before it were read ahead, see fetch.go
}

const (
	firstTurns = 16 // slots
	spareTurns = 1024
	// maxShift is how many slots a group may move to get its place in the list.
	maxShift = 16
)

func (t *turns) len() int {
	if t == nil {
		return 0
	}
	return int(t.end-t.first) - t.gone + len(t.heap)
}

func (t *turns) at(n uint64) *heapSlot { return &t.list[n&uint64(len(t.list)-1)] }

// next returns the group with the lowest turn and its turn, or nil.
func (t *turns) next() (*group, turn) {
	switch {
	case t == nil:
		return nil, turn{}
	case t.first < t.end:
		slot := t.at(t.first)
		if len(t.heap) == 0 || !t.heap[0].turn.before(slot.turn) {
			return slot.group, slot.turn
		}
	case len(t.heap) == 0:
		return nil, turn{}
	}
	return t.heap.first()
}

// turnOf returns the turn of a group, if it is there.
func (t *turns) turnOf(g *group) (at turn, ok bool) {
	switch {
	case t == nil:
		return turn{}, false
	case g.slot > 0:
		return t.at(g.slot).turn, true
	}
	return t.heap.turnOf(eligibleHeap, g)
}

// put adds a group by its turn, or moves it there.
func (t *turns) put(g *group, at turn) {
	if g.slot > 0 {
		if t.at(g.slot).turn == at {
			return
		}
		t.leaveList(g)
	}
	if at.out == 0 && t.insert(g, at) {
		t.heap.remove(eligibleHeap, g)
		return
	}
	t.heap.put(eligibleHeap, g, at)
}

// remove takes a group out, if it is there.
func (t *turns) remove(g *group) {
	switch {
	case t == nil:
	case g.slot > 0:
		t.leaveList(g)
	default:
		t.heap.remove(eligibleHeap, g)
	}
}

// insert puts a group into the list. It reports false if too many groups there come after it.
func (t *turns) insert(g *group, at turn) bool {
	n := t.end
	for n > t.first && at.before(t.at(n-1).turn) {
		if n--; t.end-n > maxShift {
			return false
		}
	}
	if int(t.end-t.first) == len(t.list) {
		t.grow()
	}
	for i := t.end; i > n; i-- {
		t.set(i, *t.at(i - 1))
	}
	t.set(n, heapSlot{at, g})
	t.end++
	return true
}

func (t *turns) set(n uint64, slot heapSlot) {
	*t.at(n) = slot
	if slot.group != nil {
		slot.group.slot = n
	}
}

func (t *turns) grow() {
	old := *t
	t.list = make([]heapSlot, max(2*len(t.list), firstTurns))
	for n := t.first; n < t.end; n++ {
		*t.at(n) = *old.at(n)
	}
}

// leaveList takes a group out of the list.
func (t *turns) leaveList(g *group) {
	t.at(g.slot).group = nil
	g.slot = 0
	t.gone++
	for t.first < t.end && t.at(t.first).group == nil {
		t.first++
		t.gone--
	}
	for t.first < t.end && t.at(t.end-1).group == nil {
		t.end--
		t.gone--
	}
	switch {
	case t.first == t.end && len(t.list) > spareTurns:
		t.list = nil
	case t.gone > compactAbove && t.gone > int(t.end-t.first)/2:
		t.compact()
	}
}

// compact removes the slots without a group.
func (t *turns) compact() {
	end := t.first
	for n := t.first; n < t.end; n++ {
		if slot := *t.at(n); slot.group != nil {
			t.set(end, slot)
			end++
		}
	}
	for n := end; n < t.end; n++ {
		t.at(n).group = nil
	}
	t.end, t.gone = end, 0
}
