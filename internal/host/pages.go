package host

import (
	"iter"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// pages reads the messages of a shard in one state a page at a time, so that
// neither the memory nor the lock that it takes depend on how many there are.
// Without a journal all of them are in memory anyway, and one page.
type pages[T any] struct {
	shard *shard
	state engine.State
	limit int // 0: none
	// show makes what the reader wants to see of a message; ok is false if that
	// is nothing.
	show func(e *engine.Entry, now engine.Moment) (shown T, ok bool)

	page []T
	last engine.Point
	done bool
}

const (
	// pageLen is how many messages a page has.
	pageLen = 64
	// pageLook is how many are looked at for a page. The lock of the shard is held
	// meanwhile, and a commit waits for it if it has something of this shard: also
	// the other queues in that commit wait.
	pageLook = 128
	// pageBytes is how many bytes of bodies are read for a page, and one body more:
	// large messages must not make a look expensive, nor its lock long.
	pageBytes = 256 << 10
)

// first returns the next message, or nil if there is none.
func (p *pages[T]) first() *T {
	for len(p.page) == 0 && !p.done {
		p.turn()
	}
	if len(p.page) == 0 {
		return nil
	}
	return &p.page[0]
}

// take removes the message that first returned.
func (p *pages[T]) take() T {
	taken := p.page[0]
	p.page = p.page[1:]
	return taken
}

// turn reads the next page.
func (p *pages[T]) turn() {
	sh := p.shard
	sh.lock()
	defer sh.unlock()
	now := sh.queue.now()
	sh.engine.Advance(now)
	if sh.queue.journal != nil && p.state != engine.InFlight {
		p.turnJournaled(now)
		return
	}
	for e := range sh.engine.InState(p.state) {
		if p.add(e, now) {
			break
		}
	}
	p.done = true
}

// turnJournaled reads the next page from the journal.
func (p *pages[T]) turnJournaled(now engine.Moment) {
	looked, bytes := 0, 0
	for e, found := range p.shard.engine.After(p.state, p.last) {
		if looked == pageLook || len(p.page) == pageLen || bytes >= pageBytes {
			return
		}
		looked++
		bytes += int(e.Size)
		p.last = engine.PointOf(e)
		if found && p.add(e, now) {
			break
		}
	}
	p.done = true
}

// add adds a message to the page if it is wanted, and reports whether it was the
// last that is.
func (p *pages[T]) add(e *engine.Entry, now engine.Moment) (last bool) {
	shown, ok := p.show(e, now)
	if ok {
		p.page = append(p.page, shown)
	}
	return ok && p.limit > 0 && len(p.page) == p.limit
}

// merge yields what is in all shards, the first by before at each time, and of
// several that of the first shard.
func merge[T any](shards []*pages[T], before func(a, b *T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for {
			var next *pages[T]
			for _, p := range shards {
				if p.first() != nil && (next == nil || before(p.first(), next.first())) {
					next = p
				}
			}
			if next == nil || !yield(next.take()) {
				return
			}
		}
	}
}
