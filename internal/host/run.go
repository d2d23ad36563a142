package host

import "github.com/mailboxmq/mailbox/internal/engine"

// run applies a batch of operations to their shards. Consecutive operations in one shard
// share its lock and, with a journal, one wait for the disk.
type run struct {
	queue   *queue
	shard   *shard // locked; nil between shards
	pending *Pending
	waiting []*Pending
	failure error // of the commits that were waited for
}

// use locks sh for the next operation, and leaves the previous shard.
func (r *run) use(sh *shard) {
	if r.shard == sh {
		return
	}
	r.leave()
	sh.lock()
	for sh.stagingBlocks > 0 {
		if sh.stagingAllowed == nil {
			sh.stagingAllowed = make(chan struct{})
		}
		stagingAllowed := sh.stagingAllowed
		sh.unlock()
		r.settle() // another goroutine may depend on this one to lead
		<-stagingAllowed
		sh.lock()
	}
	r.shard = sh
}

// publish publishes a staged operation: at once without a journal, and otherwise when it
// is durable.
func (r *run) publish(now engine.Moment, e *engine.Entry) {
	journal := r.queue.backend.options.Journal
	if journal == nil {
		r.shard.engine.PublishNow(now, e)
		return
	}
	r.shard.record(journal, e)
	r.hold(e)
}

// hold adds a recorded operation to those that are published when they are durable.
func (r *run) hold(e *engine.Entry) {
	if r.pending == nil {
		r.pending = r.queue.backend.newPending(r.shard)
	}
	r.pending.staged = append(r.pending.staged, e)
	r.shard.staged++
}

// leave unlocks the shard in use.
func (r *run) leave() {
	sh := r.shard
	if sh == nil {
		return
	}
	if r.pending != nil {
		journal := r.queue.backend.options.Journal
		journal.Lock()
		journal.Await(r.pending)
		journal.Unlock()
		r.waiting = append(r.waiting, r.pending)
		r.pending = nil
	}
	sh.unlock()
	r.shard = nil
}

// finish ends the run and waits until all of it is published. An error concerns the whole
// batch, whose outcome is unknown then.
func (r *run) finish() error {
	r.leave()
	r.settle()
	failure := r.failure
	r.failure = nil
	return failure
}

// settle waits for the operations in shards that were left.
func (r *run) settle() {
	for _, p := range r.waiting {
		if err := r.queue.backend.options.Journal.Wait(p); err != nil && r.failure == nil {
			r.failure = err
		}
		r.queue.backend.free(p)
	}
	r.waiting = nil
}
