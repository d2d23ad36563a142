package host

import (
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// run applies a batch of operations to their shards. Consecutive operations in one shard
// share its lock and, with a journal, one wait for the disk.
type run struct {
	queue   *queue
	shard   *shard        // locked; nil between shards
	now     engine.Moment // when shard was locked, which is when its operations happen
	pending *Pending      // operations in shard; nil: none
	awaits  bool          // operations in shards that were left wait for the journal
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
		<-stagingAllowed
		sh.lock()
	}
	r.shard, r.now = sh, r.queue.now()
}

// publish publishes a staged operation: at once without a journal, and otherwise when it
// is durable.
func (r *run) publish(e *engine.Entry) {
	journal := r.queue.backend.options.Journal
	if journal == nil {
		r.shard.engine.PublishNow(r.now, e)
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

// leave unlocks the shard in use. More operations may follow in others.
func (r *run) leave() {
	r.awaits = r.awaits || r.pending != nil
	r.release()
}

// release makes the operations in the shard in use wait for the journal, and unlocks the shard.
// It does not touch r after that: if p calls a completion, that may be under way, and may use
// the memory of r for another run.
func (r *run) release() {
	sh, p := r.shard, r.pending
	r.shard, r.pending = nil, nil
	if p != nil {
		journal := p.backend.options.Journal
		journal.Lock()
		journal.Await(p)
		journal.Unlock()
	}
	if sh != nil {
		sh.unlock()
	}
}

// end unlocks the shard in use, and ends the run. It returns what is complete when all of
// the run is, or nil if that is now: p calls then, which may be before end returns, or can be
// waited for if that is nil. Set durable if the run depends on earlier operations that may not
// be durable yet.
func (r *run) end(durable bool, then func(*completion.Round, error)) (p *Pending) {
	if r.pending == nil && (r.awaits || durable) && r.queue.journal != nil {
		r.pending = r.queue.backend.newPending(nil)
	}
	if p = r.pending; p != nil {
		p.then, p.waits = then, then == nil
	}
	r.awaits = false
	r.release()
	return p
}

// finish ends the run and waits until all of it is published. An error concerns the whole
// batch, whose outcome is unknown then.
func (r *run) finish(durable bool) error {
	p := r.end(durable, nil)
	if p == nil {
		return nil
	}
	err := r.queue.journal.Wait(p)
	p.free()
	return err
}
