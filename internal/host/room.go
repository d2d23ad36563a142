package host

import (
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// Room is memory that the shards of a backend share; see engine.Room.
type Room struct {
	size      int64
	taken     atomic.Int64
	reclaimed atomic.Int64 // an engine.Instant: when it was last taken back from idle shards
}

const (
	// roomIdle is how long a shard may keep its part of the room without a receive, if others
	// want it.
	roomIdle = 5 * time.Second
	// reclaimEvery bounds how often the shards are searched for idle ones: it takes some
	// milliseconds for 100,000 queues.
	reclaimEvery = time.Second
)

// NewRoom returns a room of about this many bytes.
func NewRoom(bytes int64) *Room { return &Room{size: bytes} }

// Free returns how many bytes are free.
func (r *Room) Free() int64 { return r.size - r.taken.Load() }

// Take changes how many bytes are taken.
func (r *Room) Take(bytes int64) { r.taken.Add(bytes) }

// scarce reports whether most of the room is taken.
func (r *Room) scarce() bool { return r.Free() < r.size/2 }

// begin reports whether the caller is to take the room back from idle shards.
func (r *Room) begin(now engine.Instant) bool {
	last := r.reclaimed.Load()
	return now >= engine.Instant(last).Add(reclaimEvery) && r.reclaimed.CompareAndSwap(last, int64(now))
}

// reclaimRoom takes the room back from shards without receives, if it is scarce: their
// messages stay on disk, and those of the queue that is received from can be in memory. The
// caller holds no lock.
func (b *Backend) reclaimRoom() {
	room, ok := b.options.Hold.Room.(*Room)
	if !ok || !room.scarce() {
		return
	}
	now := b.clock.now().At
	if !room.begin(now) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		for _, sh := range q.shards {
			if !sh.mu.TryLock() {
				continue // it is busy
			}
			if sh.received.Add(roomIdle) < now {
				sh.engine.GiveRoom() // without effects, so unlock has nothing to do
			}
			sh.mu.Unlock()
		}
	}
}
