package host

import (
	"iter"

	"github.com/mailboxmq/mailbox/internal/engine"
)

// pages reads the messages of a shard in one state page by page, so that with a journal neither
// its memory nor the time it holds the lock depends on their number. Without a journal reading a page begins
// at the first message again, so each page is twice as long as the one before: a caller that stops early pays
// for about what it took. Delayed and in-flight messages in memory are one page: they are collected in any case.
type pages[T any] struct {
	// ended is closed when no more pages are wanted; nil if all are.
	ended <-chan struct{}
	shard *shard
	state engine.State
	limit int // 0: none
	// show converts a message for the caller; ok is false if it is not wanted.
	show func(e *engine.Entry, now engine.Moment) (shown T, ok bool)

	page []T
	room int // messages that the next page in memory has at most
	last engine.Point
	done bool

	// position, if it is not nil, is set to the point of each message that is taken: points has
	// those of the page.
	position *engine.Point
	points   []engine.Point
}

const (
	// pageLen bounds the messages of a page, and of the first one in memory.
	pageLen = 64
	// pageLook bounds the messages that are read for a page. The lock of the shard is held
	// meanwhile, and a commit with operations of this shard waits for it, together with the
	// other queues in that commit.
	pageLook = 128
	// pageBytes bounds the bytes of bodies that are read for a page, plus one body, so that
	// large messages do not make a page slow.
	pageBytes = 256 << 10
)

// first returns the next message, or nil if there is none.
func (p *pages[T]) first() *T {
	for len(p.page) == 0 && !p.done {
		select {
		case <-p.ended:
			p.done = true
			continue
		default:
		}
		p.readPage()
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
	if p.position != nil {
		*p.position, p.points = p.points[0], p.points[1:]
	}
	return taken
}

// readPage reads the next page.
func (p *pages[T]) readPage() {
	sh := p.shard
	sh.lock()
	defer sh.unlock()
	now := sh.queue.now()
	sh.engine.Advance(now)
	if sh.queue.journal != nil && p.state != engine.InFlight {
		p.readBacklogPage(now)
		return
	}
	p.room = max(2*p.room, p.limit, pageLen)
	paged := p.state == engine.Ready || p.state == engine.Dead
	all := sh.engine.InState(p.state)
	if paged {
		all = sh.engine.Behind(p.state, p.last.Place)
	}
	for e := range all {
		if p.last.Covers(p.state, e) {
			continue
		}
		if paged && len(p.page) == p.room {
			return
		}
		p.last.Pass(e)
		if p.add(e, now) {
			break
		}
	}
	p.done = true
}

// readBacklogPage reads the next page from the backlog.
func (p *pages[T]) readBacklogPage(now engine.Moment) {
	looked, bytes := 0, 0
	for e, found := range p.shard.engine.After(p.state, p.last) {
		if looked == pageLook || len(p.page) == pageLen || bytes >= pageBytes {
			return
		}
		looked++
		bytes += int(e.Size)
		p.last.Pass(e)
		if found && p.add(e, now) {
			break
		}
	}
	p.done = true
}

// add adds a message to the page if it is wanted, and reports whether the limit is
// reached.
func (p *pages[T]) add(e *engine.Entry, now engine.Moment) (last bool) {
	shown, ok := p.show(e, now)
	if ok {
		p.page = append(p.page, shown)
		if p.position != nil {
			p.points = append(p.points, p.last)
		}
	}
	return ok && p.limit > 0 && len(p.page) == p.limit
}

// merge yields the messages of all shards in the order of before; of equal ones, that of
// the first shard comes first.
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
