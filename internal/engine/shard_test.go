package engine

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/mailboxmq/mailbox/driver"
)

// TestShardFitsIn632Bytes: every queue has a shard, and most are idle. With 632 bytes a
// shard fits into the allocator's size class of 640.
func TestShardFitsIn632Bytes(t *testing.T) {
	if size := unsafe.Sizeof(Shard{}); size > 632 {
		t.Errorf("a shard has %d bytes", size)
	}
}

// TestSeenEffectsKeepNoMessageAlive: effects that the owner has seen must not keep
// bodies in memory.
func TestSeenEffectsKeepNoMessageAlive(t *testing.T) {
	s := New(driver.Config{}, 1)
	s.RecordEffects(true)
	for i := range 10 {
		s.PublishNow(at(0), s.StageSend(at(0), Content{ID: fmt.Sprint(i), Body: []byte("body")}, 0))
	}
	for _, most := range []int{10, 1, 3} {
		seen := 0
		for effects := s.Effects(); len(effects) > 0; effects = s.Effects() {
			seen += len(effects)
			for i, effect := range effects {
				if effect.Entry == nil {
					t.Fatalf("effect %d of %d is gone before it was seen", i, len(effects))
				}
			}
		}
		if seen == 0 {
			t.Fatal("nothing happened")
		}
		for i, effect := range s.effects[:cap(s.effects)] {
			if effect.Entry != nil {
				t.Errorf("entry %s is kept, as effect %d", effect.Entry.ID, i)
			}
		}
		s.Receive(at(0), most, 0, 0, nil) // visibility 0: ready again at once
	}
}

// TestEmptyLeaseTableIsSmall after many leases at once, and after few.
func TestEmptyLeaseTableIsSmall(t *testing.T) {
	for _, n := range []int{1, 2, 100, 5000} {
		var l leases
		entries := make([]Entry, n)
		for i := range entries {
			entries[i].Seq = uint64(i + 1)
			l.add(&entries[i])
		}
		for i := range entries {
			if l.get(entries[i].Seq) != &entries[i] {
				t.Fatalf("of %d, %d is not found", n, i)
			}
			l.remove(&entries[i])
			if l.get(entries[i].Seq) != nil {
				t.Fatalf("of %d, %d is still there", n, i)
			}
		}
		if len(l.slots) > min(max(minLeases, 4*n), maxIdleLeases) {
			t.Errorf("after %d leases there is room for %d", n, len(l.slots))
		}
	}
}
