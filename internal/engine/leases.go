package engine

import "math/bits"

// leases finds messages by Seq: an open-addressed table with linear probing. Every
// receive and every ack uses it, and a Go map costs three times as much there.
type leases struct {
	slots []*Entry // a power of two, at most half full
	count int32
	shift uint8 // 64 minus the logarithm of len(slots)
}

// Most tables are small, and every shard has two: a table starts with minLeases slots,
// and keeps at most maxIdleLeases while it is empty.
const (
	minLeases     = 4
	maxIdleLeases = 256
)

func (l *leases) home(seq uint64) int { return int(seq * 0x9e3779b97f4a7c15 >> l.shift) }

func (l *leases) get(seq uint64) *Entry {
	if l.count == 0 {
		return nil
	}
	for i := l.home(seq); ; i = (i + 1) & (len(l.slots) - 1) {
		if e := l.slots[i]; e == nil || e.Seq == seq {
			return e
		}
	}
}

func (l *leases) add(e *Entry) {
	if 2*(int(l.count)+1) > len(l.slots) {
		l.resize(max(minLeases, 2*len(l.slots)))
	}
	l.count++
	l.place(e)
}

func (l *leases) place(e *Entry) {
	i := l.home(e.Seq)
	for l.slots[i] != nil {
		i = (i + 1) & (len(l.slots) - 1)
	}
	l.slots[i] = e
}

func (l *leases) remove(e *Entry) {
	mask := len(l.slots) - 1
	gap := l.home(e.Seq)
	for l.slots[gap] != e {
		gap = (gap + 1) & mask
	}
	l.slots[gap] = nil
	l.count--
	// Close the gap, so that no search stops early.
	for i := (gap + 1) & mask; l.slots[i] != nil; i = (i + 1) & mask {
		if home := l.home(l.slots[i].Seq); (i-home)&mask >= (i-gap)&mask {
			l.slots[gap], l.slots[i] = l.slots[i], nil
			gap = i
		}
	}
	switch {
	case l.count == 0 && len(l.slots) > maxIdleLeases:
		*l = leases{}
	case len(l.slots) > 1024 && int(l.count) < len(l.slots)/8:
		l.resize(len(l.slots) / 2)
	}
}

func (l *leases) resize(n int) {
	old := l.slots
	l.slots = make([]*Entry, n)
	l.shift = uint8(64 - bits.TrailingZeros(uint(n)))
	for _, e := range old {
		if e != nil {
			l.place(e)
		}
	}
}
