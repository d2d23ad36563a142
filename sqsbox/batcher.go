package sqsbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// maxBatchWait is how long a call waits at most for the response to an earlier request.
// A request to SQS takes less, unless something is wrong with it.
const maxBatchWait = 20 * time.Millisecond

// A batcher combines the entries of many calls into few requests. A call that finds no
// request under way is sent at once. Entries that arrive during a request wait for its
// response and are sent together, at the latest after maxBatchWait. A full request is
// sent at once. At most parallel requests are under way.
type batcher[E, R any] struct {
	backend  *Backend
	parallel int
	// size returns how many bytes an entry counts towards maxBatchBytes.
	size func(E) int
	// confirmsLate: SQS confirms entries that arrive after the deadline of their
	// delivery, and may not carry them out.
	confirmsLate bool
	// ask sends one request and returns an answer for each entry, in order. An error
	// applies to the whole request.
	ask func(ctx context.Context, entries []E) ([]answer[R], error)

	mu       sync.Mutex // guards the fields below
	waiting  []*queuedEntry[E, R]
	underway int  // requests
	timed    bool // a timer of maxBatchWait is running
	overdue  bool // it has fired
}

// An answer is the result of one entry.
type answer[R any] struct {
	result R
	err    error
	// whole: err is that of the whole request, not of this entry.
	whole bool
}

// A queuedEntry is one entry that waits for a request, or is in one. done is called
// exactly once, with the answer or with the error of its cancelled context.
type queuedEntry[E, R any] struct {
	ctx   context.Context // the request uses the values of its first entry's
	entry E
	until time.Time // it must not be sent later; zero: no limit
	done  func(answer[R])
}

// isLate reports whether until has passed.
func (e *queuedEntry[E, R]) isLate() bool { return !e.until.IsZero() && !time.Now().Before(e.until) }

// do sends entries and returns their answers. When ctx ends it returns the error of ctx:
// entries that were not in a request by then are not sent, others may have been carried
// out. settle gets each answer as soon as it arrives, even if the caller has stopped
// waiting.
//
// An entry whose time in until, if it has one, passes before its request is sent is not
// sent: that is ErrReceiptExpired. If SQS confirms late entries, a confirmation after
// that time is ErrUnavailable: the entry may not have been carried out.
func (b *batcher[E, R]) do(ctx context.Context, entries []E, until []time.Time, settle func(i int, a *answer[R])) ([]answer[R], error) {
	if len(entries) == 0 {
		return nil, nil
	}
	answers := make([]answer[R], len(entries))
	var missing atomic.Int64
	missing.Store(int64(len(entries)))
	all := make(chan struct{})
	queued := make([]*queuedEntry[E, R], len(entries))
	for i, entry := range entries {
		queued[i] = &queuedEntry[E, R]{ctx: ctx, entry: entry, done: func(a answer[R]) {
			settle(i, &a)
			answers[i] = a
			if missing.Add(-1) == 0 {
				close(all)
			}
		}}
		if until != nil {
			queued[i].until = until[i]
		}
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, queued...)
	b.sendLocked()
	b.mu.Unlock()

	select {
	case <-all:
		return answers, nil
	case <-ctx.Done():
		b.takeBack(queued, ctx.Err())
		return nil, ctx.Err()
	}
}

// takeBack removes those of the entries that are not in a request yet, and ends them
// with err.
func (b *batcher[E, R]) takeBack(queued []*queuedEntry[E, R], err error) {
	mine := make(map[*queuedEntry[E, R]]bool, len(queued))
	for _, e := range queued {
		mine[e] = true
	}
	var taken []*queuedEntry[E, R]
	b.mu.Lock()
	kept := b.waiting[:0]
	for _, e := range b.waiting {
		if mine[e] {
			taken = append(taken, e)
		} else {
			kept = append(kept, e)
		}
	}
	clear(b.waiting[len(kept):])
	b.waiting = kept
	b.mu.Unlock()
	for _, e := range taken {
		e.done(answer[R]{err: err, whole: true})
	}
}

// sendLocked makes the requests that may be made now.
func (b *batcher[E, R]) sendLocked() {
	for len(b.waiting) > 0 && b.underway < b.parallel {
		n, full := b.nextBatchLocked()
		if b.underway > 0 && !full && !b.overdue {
			b.startTimerLocked()
			return
		}
		b.overdue = false
		load := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.underway++
		if !b.backend.start(load[0].ctx, func(ctx context.Context) { b.request(ctx, load) }) {
			go b.finish(load, nil, &driver.Error{Code: driver.ErrClosed})
		}
	}
}

// startTimerLocked makes the entries that still wait after maxBatchWait go out.
func (b *batcher[E, R]) startTimerLocked() {
	if b.timed {
		return
	}
	b.timed = true
	time.AfterFunc(maxBatchWait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.timed, b.overdue = false, len(b.waiting) > 0
		b.sendLocked()
	})
}

// nextBatchLocked returns how many of the waiting entries go into the next request, and
// whether that request is full.
func (b *batcher[E, R]) nextBatchLocked() (n int, full bool) {
	bytes := 0
	for _, e := range b.waiting {
		bytes += b.size(e.entry)
		if n == maxEntries || n > 0 && bytes > maxBatchBytes {
			return n, true
		}
		n++
	}
	return n, n == maxEntries
}

// request makes one request and hands out the answers.
func (b *batcher[E, R]) request(ctx context.Context, load []*queuedEntry[E, R]) {
	var entries []E
	var late, sent []*queuedEntry[E, R]
	for _, e := range load {
		if e.isLate() {
			late = append(late, e)
		} else {
			entries, sent = append(entries, e.entry), append(sent, e)
		}
	}
	for _, e := range late {
		e.done(answer[R]{err: &driver.Error{Code: driver.ErrReceiptExpired}})
	}
	var answers []answer[R]
	var err error
	if len(sent) > 0 {
		answers, err = b.ask(ctx, entries)
	}
	b.finish(sent, answers, err)
}

// finish hands out the answers of a request, and sends the entries that waited for it.
func (b *batcher[E, R]) finish(load []*queuedEntry[E, R], answers []answer[R], err error) {
	b.mu.Lock()
	b.underway--
	b.sendLocked()
	b.mu.Unlock()
	for i, e := range load {
		switch {
		case err != nil:
			e.done(answer[R]{err: err, whole: true})
		case b.confirmsLate && answers[i].err == nil && e.isLate():
			e.done(answer[R]{err: &driver.Error{
				Code: driver.ErrUnavailable, Detail: "SQS confirmed after the deadline of the delivery, and may not have carried it out",
			}})
		default:
			e.done(answers[i])
		}
	}
}

// failuresOf returns the error of a call whose entries, at these positions of its batch,
// got these answers; bad has the errors of the other positions.
func failuresOf[R any](bad []error, positions []int, answers []answer[R]) error {
	whole := len(answers) > 0 && len(answers) == len(bad)
	for i, a := range answers {
		bad[positions[i]] = a.err
		whole = whole && a.err != nil && a.whole
	}
	if whole {
		return answers[0].err
	}
	return asBatch(bad)
}
