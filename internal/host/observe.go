package host

import "github.com/mailboxmq/mailbox/driver"

// Observe calls f for every ending until stop is called; see driver.Observable.
func (b *Backend) Observe(f func(driver.Ending)) (stop func()) {
	remove := b.observers.Add(f)
	b.recordEndings()
	return func() {
		remove()
		b.recordEndings()
	}
}

// recordEndings makes all shards record endings if there are observers.
func (b *Backend) recordEndings() {
	for _, q := range b.allQueues() {
		q.recordEndings()
	}
}

func (q *queue) recordEndings() {
	for _, sh := range q.shards {
		sh.lock()
		sh.engine.RecordEndings(q.backend.observers.Any())
		sh.unlock()
	}
}

// endingsLocked returns the endings to pass to observers. Without observers, endings of
// Restore are kept for the first one.
func (sh *shard) endingsLocked() []driver.Ending {
	if !sh.queue.backend.observers.Any() {
		return nil
	}
	return sh.engine.Endings()
}

// notify passes endings to the observers.
func (q *queue) notify(endings []driver.Ending) {
	for i := range endings {
		endings[i].Queue = q.name
		q.backend.observers.Tell(endings[i])
	}
}
