package host

import "github.com/mailboxmq/mailbox/driver"

// Observe calls f for every ending until stop is called; see driver.Observable.
func (b *Backend) Observe(f func(driver.Ending)) (stop func()) {
	remove := b.observers.Add(f)
	b.tellEndings()
	return func() {
		remove()
		b.tellEndings()
	}
}

// tellEndings makes all shards keep endings if there are observers.
func (b *Backend) tellEndings() {
	b.mu.Lock()
	queues := make([]*queue, 0, len(b.queues))
	for _, q := range b.queues {
		queues = append(queues, q)
	}
	b.mu.Unlock()
	for _, q := range queues {
		q.tellEndings()
	}
}

func (q *queue) tellEndings() {
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.RecordEndings(q.backend.observers.Any())
		sh.unlock()
	}
}

// endingsLocked returns what observers have to hear. Without observers, endings
// of Restore stay for the first one.
func (sh *shard) endingsLocked() []driver.Ending {
	if !sh.queue.backend.observers.Any() {
		return nil
	}
	return sh.engine.Endings()
}

// tell tells observers of endings.
func (q *queue) tell(endings []driver.Ending) {
	for i := range endings {
		endings[i].Queue = q.name
		q.backend.observers.Tell(endings[i])
	}
}
