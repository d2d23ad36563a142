package reply

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
