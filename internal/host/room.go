package host

import "sync/atomic"

// Room is memory that the shards of a backend share; see engine.Room.
type Room struct {
	size  int64
	taken atomic.Int64
}

// NewRoom returns a room of about this many bytes.
func NewRoom(bytes int64) *Room { return &Room{size: bytes} }

// Free returns how many bytes are free.
func (r *Room) Free() int64 { return r.size - r.taken.Load() }

// Take changes how many bytes are taken.
func (r *Room) Take(bytes int64) { r.taken.Add(bytes) }
