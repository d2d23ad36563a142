package slotstore

// A slotHeap is a heap of slots with the first to expire in front. Slots know their
// position, so that any of them can be removed.
type slotHeap []*slot

func (h *slotHeap) push(s *slot) {
	s.position = len(*h)
	*h = append(*h, s)
	h.up(s.position)
}

// remove removes a slot and sets its position to -1.
func (h *slotHeap) remove(s *slot) {
	at, last := s.position, len(*h)-1
	h.swap(at, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if at < last {
		h.down(at)
		h.up(at)
	}
	s.position = -1
}

func (h slotHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h slotHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].expires <= h[i].expires {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h slotHeap) down(i int) {
	for {
		first := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(h) && h[child].expires < h[first].expires {
				first = child
			}
		}
		if first == i {
			return
		}
		h.swap(i, first)
		i = first
	}
}

// A slotList holds slots in the order in which they were pushed. Slots know
// their neighbours, so that any of them can be removed.
type slotList struct{ first, last *slot }

func (l *slotList) push(s *slot) {
	s.prev = l.last
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
}

func (l *slotList) remove(s *slot) {
	if s.prev == nil {
		l.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		l.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}
