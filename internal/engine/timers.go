package engine

// timers is a heap of entries by Due, then by Seq so that simultaneous timers fire in a
// fixed order. Each has heapChildren children, and an entry that moves is written once a level:
// with many messages in flight, each entry that is read is a cache miss. Entries know their
// index, so removing the timer of a settled lease is O(log n).
type timers []*Entry

// firesBefore reports whether the timer of e fires before that of f.
func (e *Entry) firesBefore(f *Entry) bool {
	if e.Due != f.Due {
		return e.Due < f.Due
	}
	return e.Seq < f.Seq
}

func (t *timers) push(e *Entry) {
	*t = append(*t, e)
	t.fill(len(*t)-1, e)
}

func (t *timers) remove(e *Entry) {
	i, last := int(e.timerIndex), len(*t)-1
	moved := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	if i < last {
		t.fill(i, moved)
	}
	e.timerIndex = -1
}

// fix restores the order after e.Due changed.
func (t timers) fix(e *Entry) { t.fill(int(e.timerIndex), e) }

// fill puts an entry where it belongs: into the gap at i, or above or below it.
func (t timers) fill(i int, e *Entry) {
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

func (t timers) set(i int, e *Entry) {
	t[i] = e
	e.timerIndex = int32(i)
}
