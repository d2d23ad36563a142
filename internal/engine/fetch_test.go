package engine

import (
	"testing"
	"unsafe"
)

const cacheLine = 64

// TestFetchReadsEveryCacheLine: a line that is left out is waited for by each receive.
func TestFetchReadsEveryCacheLine(t *testing.T) {
	var (
		e Entry
		x Extra
		g group
	)
	for _, c := range []struct {
		name string
		read []uintptr // offsets that fetched reads, in order
		used uintptr   // up to where a receive uses it
	}{
		{"Entry", []uintptr{unsafe.Offsetof(e.Seq), unsafe.Offsetof(e.Extra), unsafe.Offsetof(e.Born)}, unsafe.Sizeof(e)},
		{"Extra", []uintptr{unsafe.Offsetof(x.Attributes), unsafe.Offsetof(x.DeliverAt), unsafe.Offsetof(x.LastError) + 8}, unsafe.Offsetof(x.Redrives)},
		{"group", []uintptr{unsafe.Offsetof(g.waiting), unsafe.Offsetof(g.last), unsafe.Offsetof(g.position), unsafe.Offsetof(g.limits)}, unsafe.Offsetof(g.listed)},
	} {
		for alignment := uintptr(0); alignment < cacheLine; alignment += 16 {
			if c.name == "Entry" && alignment > 0 {
				continue // the allocator has a size class of 192 for entries
			}
			read := make(map[uintptr]bool)
			for _, offset := range c.read {
				read[(alignment+offset)/cacheLine] = true
			}
			for line := (alignment + c.read[0]) / cacheLine; line <= (alignment+c.used-1)/cacheLine; line++ {
				if !read[line] {
					t.Errorf("%s at %d modulo %d: line %d is not read", c.name, alignment, cacheLine, line)
				}
			}
		}
	}
	if size := unsafe.Sizeof(e); size <= 176 || size > 192 {
		t.Errorf("an entry has %d bytes, not 177 to 192", size)
	}
}

// TestChunkOfSmallGroupIsOneCacheLine: the head of a group costs one read of memory.
func TestChunkOfSmallGroupIsOneCacheLine(t *testing.T) {
	if size := unsafe.Sizeof(chunk{}) + firstChunk*unsafe.Sizeof((*Entry)(nil)); size != cacheLine {
		t.Errorf("a chunk has %d bytes", size)
	}
}

func TestSteadyFifoAllocatesNothing(t *testing.T) {
	for _, waiting := range []int{1, 2, 5, 200} {
		var f fifo
		for i := range waiting {
			f.push(&Entry{Seq: uint64(i)})
		}
		turn := func() {
			e := f.first()
			f.pop()
			f.push(e)
		}
		for range 3 * lastChunk { // it has found its chunk
			turn()
		}
		if allocations := testing.AllocsPerRun(3*lastChunk, turn); allocations > 0 {
			t.Errorf("%d entries: %v allocations", waiting, allocations)
		}
		for i := range waiting {
			if want := f.first(); want == nil || want.Seq != (f.last().Seq+1)%uint64(waiting) {
				t.Fatalf("%d entries, turn %d: %v is first", waiting, i, want)
			}
			turn()
		}
	}
}
