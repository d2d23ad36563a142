package host

// Turns say which shard of a queue is next for a send and for a receive. They are not
// promised and not stored. A test that compares two backends across restarts sets them.
type Turns struct{ send, take uint64 }

// Turns returns the turns of all queues by name.
func (b *Backend) Turns() map[string]Turns {
	b.mu.Lock()
	defer b.mu.Unlock()
	turns := make(map[string]Turns, len(b.queues))
	for name, q := range b.queues {
		turns[name] = Turns{send: q.nextSend.Load(), take: q.nextTake.Load()}
	}
	return turns
}

// SetTurns sets the turns of queues.
func (b *Backend) SetTurns(turns map[string]Turns) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, q := range b.queues {
		q.nextSend.Store(turns[name].send)
		q.nextTake.Store(turns[name].take)
	}
}
