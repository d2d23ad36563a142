package engine

// Room is memory that the windows of many shards share. A window that holds as much as its
// limits say may hold more ready messages while it has taken less of the room than is free. So
// one busy shard gets half of the room, and n of them an equal part each, with one more part
// left for the next. A shard gives back what it has when its messages are received, or when its
// owner calls GiveRoom. It is safe for concurrent use.
type Room interface {
	// Free returns how many bytes no window has taken; it may be negative.
	Free() int64
	// Take changes how many bytes are taken.
	Take(bytes int64)
}

// entryBytes is about what a message takes beside its body.
const entryBytes = 384

// freeRoom returns how many bytes of the room are free.
func (l *Limits) freeRoom() int64 {
	if l.Room == nil {
		return 0
	}
	return l.Room.Free()
}

// balance takes what the window holds beyond its limits from the room, or gives it back.
func (w *window) balance() {
	l := &w.limits
	if l.Room == nil {
		return
	}
	beyond := int64(max(0, w.heldReady-l.Messages))*entryBytes + int64(max(0, w.readyBytes-l.Bytes))
	if beyond != w.taken {
		l.Room.Take(beyond - w.taken)
		w.taken = beyond
	}
}

// GiveRoom gives back what the shard has of the room that it shares with others: the messages
// beyond its limits are read from the backlog again when they are wanted.
func (s *Shard) GiveRoom() {
	if s.window != nil && s.window.taken > 0 {
		s.evictReady()
	}
}

// LeaveRoom gives back what the shard has of the room that it shares with others. Its messages
// are about to be dropped.
func (s *Shard) LeaveRoom() {
	if w := s.window; w != nil && w.limits.Room != nil {
		w.limits.Room.Take(-w.taken)
		w.limits.Room, w.taken = nil, 0
	}
}
