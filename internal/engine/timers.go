package engine

// timers are entries by Due, then by Seq so that simultaneous timers fire in a fixed order. They
// are in two heaps: new ones are in a small one, and in the large one after maxYoung others. So a
// lease that is settled soon costs the same beside a million delays or longer leases.
type timers struct {
	young timerHeap
	old   *timerHeap // nil in most shards
}

// maxYoung is how many timers are young.
const maxYoung = 64

// first returns the entry that fires first, or nil.
func (t *timers) first() *Entry {
	if t.old == nil || len(*t.old) == 0 {
		if len(t.young) == 0 {
			return nil
		}
		return t.young[0]
	}
	if old := (*t.old)[0]; len(t.young) == 0 || old.firesBefore(t.young[0]) {
		return old
	}
	return t.young[0]
}

func (t *timers) len() int {
	if t.old == nil {
		return len(t.young)
	}
	return len(t.young) + len(*t.old)
}

func (t *timers) push(e *Entry) {
	if len(t.young) == maxYoung {
		if t.old == nil {
			t.old = new(timerHeap)
		}
		for _, aged := range t.young {
			t.old.push(aged)
		}
		clear(t.young)
		t.young = t.young[:0]
	}
	t.young.push(e)
}

func (t *timers) remove(e *Entry) { t.heapOf(e).remove(e) }

// fix restores the order after e.Due changed.
func (t *timers) fix(e *Entry) { heap := t.heapOf(e); heap.fill(int(e.timerIndex), e) }

func (t *timers) heapOf(e *Entry) *timerHeap {
	if i := int(e.timerIndex); i < len(t.young) && t.young[i] == e {
		return &t.young
	}
	return t.old
}

// all yields every entry, in no particular order.
func (t *timers) all(yield func(*Entry) bool) {
	for _, e := range t.young {
		if !yield(e) {
			return
		}
	}
	if t.old == nil {
		return
	}
	for _, e := range *t.old {
		if !yield(e) {
			return
		}
	}
}

// timerHeap is a heap of entries in the order in which they fire. Each has heapChildren children,
// and an entry that moves is written once a level: with many messages in flight, each entry that is
// read is a cache miss. Entries know their index, so removing the timer of a settled lease is
// O(log n).
type timerHeap []*Entry

// firesBefore reports whether the timer of e fires before that of f.
func (e *Entry) firesBefore(f *Entry) bool {
	if e.Due != f.Due {
		return e.Due < f.Due
	}
	return e.Seq < f.Seq
}

func (t *timerHeap) push(e *Entry) {
	*t = append(*t, e)
	t.fill(len(*t)-1, e)
}

func (t *timerHeap) remove(e *Entry) {
	i, last := int(e.timerIndex), len(*t)-1
	moved := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	if i < last {
		t.fill(i, moved)
	}
	e.timerIndex = -1
}

// fill puts an entry where it belongs: into the gap at i, or above or below it.
func (t timerHeap) fill(i int, e *Entry) {
	for i > 0 {
		parent := (i - 1) / heapChildren
		if !e.firesBefore(t[parent]) {
			break
		}
		t.set(i, t[parent])
		i = parent
	}
	for {
		first := heapChildren*i + 1
		if first >= len(t) {
			break
		}
		least := first
		for child := first + 1; child < min(first+heapChildren, len(t)); child++ {
			if t[child].firesBefore(t[least]) {
				least = child
			}
		}
		if !t[least].firesBefore(e) {
			break
		}
		t.set(i, t[least])
		i = least
	}
	t.set(i, e)
}

func (t timerHeap) set(i int, e *Entry) {
	t[i] = e
	e.timerIndex = int32(i)
}
