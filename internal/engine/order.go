package engine

import (
	"cmp"
	"slices"
)

// order holds entries sorted by one of their numbers. Nearly all arrive in
// ascending order and go into a FIFO; the few that come back to an earlier
// place go into a heap beside it.
//
// Entries that are removed from the middle stay inside, marked Gone, until they come
// to the head or are more than half of all. So removing from the middle is cheap, and
// Gone entries do not pile up behind a head that never moves.
type order struct {
	fifo  fifo
	back  []*Entry
	size  int  // entries inside, gone ones included
	gone  int  // of which are gone
	byAge bool // sort by Born and Seq, and not by Place
}

// compactAbove keeps small orders from being rebuilt over and over.
const compactAbove = 64

// before reports whether a comes before b.
func (o *order) before(a, b *Entry) bool {
	if !o.byAge {
		return a.Place < b.Place
	}
	return a.Born < b.Born || (a.Born == b.Born && a.Seq < b.Seq)
}

// push adds e.
func (o *order) push(e *Entry) {
	o.size++
	if o.fifo.empty() || o.isLast(e) {
		o.fifo.push(e)
		return
	}
	o.back = append(o.back, e)
	for i := len(o.back) - 1; i > 0; {
		parent := (i - 1) / 2
		if !o.before(o.back[i], o.back[parent]) {
			break
		}
		o.back[parent], o.back[i] = o.back[i], o.back[parent]
		i = parent
	}
}

// isLast reports whether e comes after all entries of the FIFO, and there are some.
func (o *order) isLast(e *Entry) bool {
	last := o.fifo.last()
	return last != nil && o.before(last, e)
}

// isBeyond reports whether e certainly comes after all entries, and there are some. Entries that
// came back to an earlier place may have overtaken the end of the FIFO since.
func (o *order) isBeyond(e *Entry) bool { return len(o.back) == 0 && o.isLast(e) }

// head returns the lowest entry that is not gone, or nil.
func (o *order) head() *Entry {
	if o.gone == 0 && len(o.back) == 0 {
		return o.fifo.first()
	}
	for {
		e, fromBack := o.lowest()
		if o.gone == 0 || e == nil || e.State != Gone {
			return e
		}
		o.drop(fromBack)
		o.gone--
	}
}

// lost notes that an entry of the order has become Gone.
func (o *order) lost() {
	o.gone++
	if o.gone > compactAbove && o.gone > o.size/2 {
		o.truncate(func(entries []*Entry) int { return len(entries) })
	}
}

// pop removes the entry that head returned last.
func (o *order) pop() {
	if len(o.back) == 0 {
		o.size--
		o.fifo.pop()
		return
	}
	_, fromBack := o.lowest()
	o.drop(fromBack)
}

func (o *order) lowest() (e *Entry, fromBack bool) {
	first := o.fifo.first()
	if len(o.back) == 0 {
		return first, false
	}
	if first == nil || o.before(o.back[0], first) {
		return o.back[0], true
	}
	return first, false
}

func (o *order) drop(fromBack bool) {
	o.size--
	if !fromBack {
		o.fifo.pop()
		return
	}
	last := len(o.back) - 1
	o.back[0] = o.back[last]
	o.back[last] = nil
	o.back = o.back[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if o.before(o.back[child], o.back[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		o.back[i], o.back[least] = o.back[least], o.back[i]
		i = least
	}
}

// all yields every entry that is not gone, in no particular order.
func (o *order) all(yield func(*Entry) bool) {
	for e := range o.fifo.all {
		if e.State != Gone && !yield(e) {
			return
		}
	}
	for _, e := range o.back {
		if e.State != Gone && !yield(e) {
			return
		}
	}
}

// truncate keeps as many of the lowest entries as keep returns, and returns the others,
// lowest first.
func (o *order) truncate(keep func(entries []*Entry) int) []*Entry {
	var entries []*Entry
	for e := range o.all {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *Entry) int {
		if o.before(a, b) {
			return -1
		}
		return 1
	})
	o.clear()
	n := keep(entries)
	for _, e := range entries[:n] {
		o.push(e)
	}
	return entries[n:]
}

// find returns the entry at this place, or nil. It is fast near the head.
func (o *order) find(place uint64) *Entry {
	for _, e := range o.back {
		if e.Place == place && e.State != Gone {
			return e
		}
	}
	for e := range o.fifo.all {
		if e.Place >= place {
			if e.Place == place && e.State != Gone {
				return e
			}
			return nil
		}
	}
	return nil
}

// sorted yields the entries of an order by place that are not gone, lowest first.
func (o *order) sorted(yield func(*Entry) bool) { o.sortedAfter(0, yield) }

// sortedAfter is sorted for the entries after a place. It passes over the others of the FIFO a chunk at a time.
func (o *order) sortedAfter(place uint64, yield func(*Entry) bool) {
	back := slices.DeleteFunc(slices.Clone(o.back), func(e *Entry) bool { return e.Place <= place })
	slices.SortFunc(back, func(a, b *Entry) int { return cmp.Compare(a.Place, b.Place) })
	next := 0
	upTo := func(limit uint64) bool {
		for ; next < len(back) && back[next].Place < limit; next++ {
			if back[next].State != Gone && !yield(back[next]) {
				return false
			}
		}
		return true
	}
	for c := o.fifo.head; c != nil; c = c.next {
		if n := len(c.items); n == c.read || c.items[n-1].Place <= place {
			continue
		}
		for _, e := range c.items[c.read:] {
			if e.Place > place && (!upTo(e.Place) || (e.State != Gone && !yield(e))) {
				return
			}
		}
	}
	upTo(^uint64(0))
}

func (o *order) clear() { *o = order{byAge: o.byAge} }

// fifo is a first-in-first-out list of entries in chunks, so that a million
// entries cost a pointer each and growing never copies them.
type fifo struct {
	head, tail *chunk
}

type chunk struct {
	next  *chunk
	read  int
	items []*Entry
}

// Chunks double from the first to the last size: a group with three messages
// should not pay for five hundred.
const (
	firstChunk = 3
	lastChunk  = 512
)

func (f *fifo) empty() bool { return f.first() == nil }

func (f *fifo) push(e *Entry) {
	if f.tail == nil {
		small := &struct { // one cache line, because those of groups are not in the cache
			chunk
			items [firstChunk]*Entry
		}{}
		small.chunk.items = small.items[:0]
		f.head, f.tail = &small.chunk, &small.chunk
	}
	switch c := f.tail; {
	case len(c.items) < cap(c.items):
	case c == f.head && 2*c.read >= len(c.items)-1: // it is half empty
		left := copy(c.items, c.items[c.read:])
		clear(c.items[left:])
		c.read, c.items = 0, c.items[:left]
	default:
		c.next = &chunk{items: make([]*Entry, 0, min(2*cap(c.items), lastChunk))}
		f.tail = c.next
	}
	f.tail.items = append(f.tail.items, e)
}

func (f *fifo) first() *Entry {
	c := f.head
	if c == nil || c.read == len(c.items) {
		return nil // pop leaves no drained chunk in front of a full one
	}
	return c.items[c.read]
}

// last returns the entry that was pushed last, or nil if the list is empty.
func (f *fifo) last() *Entry {
	if f.empty() {
		return nil
	}
	return f.tail.items[len(f.tail.items)-1]
}

func (f *fifo) pop() {
	c := f.head
	c.items[c.read] = nil
	c.read++
	if c.read < len(c.items) {
		return
	}
	if c.next != nil {
		f.head = c.next
		return
	}
	c.read, c.items = 0, c.items[:0]
}

func (f *fifo) all(yield func(*Entry) bool) {
	for c := f.head; c != nil; c = c.next {
		for _, e := range c.items[c.read:] {
			if !yield(e) {
				return
			}
		}
	}
}
