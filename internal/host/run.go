package host

import "github.com/mailboxmq/mailbox/internal/engine"

// run carries a batch of operations through the shards they belong to. Elements
// that follow each other in one shard share its lock and, with a journal, one
// wait for the disk.
type run struct {
	queue   *queue
	shard   *shard // locked; nil between shards
	pending *Pending
	waiting []*Pending
	failure error // of those that were waited for
}

// use makes sh the shard that the next element belongs to, and locks it.
func (r *run) use(sh *shard) {
	if r.shard == sh {
		return
	}
	r.leave()
	sh.lock()
	for sh.settlers > 0 {
		if sh.calm == nil {
			sh.calm = make(chan struct{})
		}
		calm := sh.calm
		sh.unlock()
		r.settle() // somebody may depend on us to lead
		<-calm
		sh.lock()
	}
	r.shard = sh
}

// publish makes a staged operation visible: at once without a journal, and
// otherwise when it is durable.
func (r *run) publish(now engine.Moment, e *engine.Entry) {
	journal := r.queue.backend.options.Journal
	if journal == nil {
		r.shard.engine.PublishNow(now, e)
		return
	}
	r.shard.record(journal, e)
	r.hold(e)
}

// hold keeps an operation that was recorded until it is durable.
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

// finish ends the run and waits until all of it is visible. The error concerns
// the whole batch, whose outcome is unknown then.
func (r *run) finish() error {
	r.leave()
	r.settle()
	failure := r.failure
	r.failure = nil
	return failure
}

// settle waits for what was staged in shards that were left.
func (r *run) settle() {
	for _, p := range r.waiting {
		if err := r.queue.backend.options.Journal.Wait(p); err != nil && r.failure == nil {
			r.failure = err
		}
		r.queue.backend.free(p)
	}
	r.waiting = nil
}
