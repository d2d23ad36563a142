package reply

// A slotHeap holds slots with the one that expires first in front. Slots know
// where they are, so that any of them can be removed.
type slotHeap []*slot

func (h *slotHeap) push(s *slot) {
	s.position = len(*h)
	*h = append(*h, s)
	h.up(s.position)
}

// remove takes a slot out, whose position is -1 from then on.
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
