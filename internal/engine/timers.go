package engine

// timers is a binary heap of entries by Due, then by Seq so that simultaneous timers
// fire in a fixed order. Entries know their index, so removing the timer of a settled
// lease is O(log n).
type timers []*Entry

func (t timers) before(i, j int) bool {
	if t[i].Due != t[j].Due {
		return t[i].Due < t[j].Due
	}
	return t[i].Seq < t[j].Seq
}

func (t timers) swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timerIndex = int32(i)
	t[j].timerIndex = int32(j)
}

func (t *timers) push(e *Entry) {
	e.timerIndex = int32(len(*t))
	*t = append(*t, e)
	t.up(len(*t) - 1)
}

func (t *timers) remove(e *Entry) {
	i, last := int(e.timerIndex), len(*t)-1
	if i != last {
		t.swap(i, last)
	}
	(*t)[last] = nil
	*t = (*t)[:last]
	if i != last {
		t.fix((*t)[i])
	}
	e.timerIndex = -1
}

// fix restores the order after e.Due changed.
func (t *timers) fix(e *Entry) {
	i := int(e.timerIndex)
	t.up(i)
	if int(e.timerIndex) == i {
		t.down(i)
	}
}

func (t timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.before(i, parent) {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t timers) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(t); child++ {
			if t.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}
