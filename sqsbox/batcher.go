package sqsbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// gathering is how long a call waits at most for the answer to an earlier request. It
// is more than a request to SQS takes, unless something is wrong with it.
const gathering = 20 * time.Millisecond

// A batcher makes few requests of many calls. A call that finds nobody else goes out
// at once, alone. What comes while a request is out waits for its answer and goes out
// together, but no longer than gathering, and not if it fills a request: a full one
// leaves at once. At most so many are out at a time.
type batcher[E, R any] struct {
	backend  *Backend
	parallel int
	// size is what an entry counts towards maxBatchBytes.
	size func(E) int
	// forgiving: SQS says yes to what comes too late, and may not do it.
	forgiving bool
	// ask sends one request and returns an answer for each entry, in order. An error
	// is that of the whole request.
	ask func(ctx context.Context, entries []E) ([]answer[R], error)

	mu      sync.Mutex // guards the fields below
	waiting []*errand[E, R]
	out     int  // requests under way
	timed   bool // somebody will look when gathering is over
	overdue bool // it is over
}

// An answer is what SQS said to one entry.
type answer[R any] struct {
	result R
	err    error
	// whole says that err is that of the request, and not of this entry.
	whole bool
}

// An errand is one entry on its way. Its answer is handed to done, exactly once, by
// whoever carried it, unless its caller has taken it back before.
type errand[E, R any] struct {
	ctx   context.Context // lends its values to the request that carries it
	entry E
	until time.Time // it is pointless from then on; zero: never
	done  func(answer[R])
}

// isLate reports whether it makes no sense any more.
func (e *errand[E, R]) isLate() bool { return !e.until.IsZero() && !time.Now().Before(e.until) }

// do sends entries and returns their answers. When ctx ends it returns its error;
// what was not under way by then is not done, and what was may be. Each answer is
// also handed to settle as soon as it is there, whether or not the caller waits.
//
// An entry whose time, if there is one for it in until, is over before its request
// leaves is not sent: that is ErrReceiptExpired. Where SQS is forgiving, a yes that
// comes after that time is ErrUnavailable: nobody knows what it is worth.
func (b *batcher[E, R]) do(ctx context.Context, entries []E, until []time.Time, settle func(i int, a *answer[R])) ([]answer[R], error) {
	if len(entries) == 0 {
		return nil, nil
	}
	answers := make([]answer[R], len(entries))
	var missing atomic.Int64
	missing.Store(int64(len(entries)))
	all := make(chan struct{})
	errands := make([]*errand[E, R], len(entries))
	for i, entry := range entries {
		errands[i] = &errand[E, R]{ctx: ctx, entry: entry, done: func(a answer[R]) {
			settle(i, &a)
			answers[i] = a
			if missing.Add(-1) == 0 {
				close(all)
			}
		}}
		if until != nil {
			errands[i].until = until[i]
		}
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, errands...)
	b.depart()
	b.mu.Unlock()

	select {
	case <-all:
		return answers, nil
	case <-ctx.Done():
		b.takeBack(errands, ctx.Err())
		return nil, ctx.Err()
	}
}

// takeBack ends errands that are not under way.
func (b *batcher[E, R]) takeBack(errands []*errand[E, R], err error) {
	mine := make(map[*errand[E, R]]bool, len(errands))
	for _, e := range errands {
		mine[e] = true
	}
	var taken []*errand[E, R]
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

// depart sends what may go. It is called with the lock held.
func (b *batcher[E, R]) depart() {
	for len(b.waiting) > 0 && b.out < b.parallel {
		n, full := b.load()
		if b.out > 0 && !full && !b.overdue {
			b.gather()
			return
		}
		b.overdue = false
		load := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.out++
		if !b.backend.start(load[0].ctx, func(ctx context.Context) { b.carry(ctx, load) }) {
			go b.finish(load, nil, &driver.Error{Code: driver.ErrClosed})
		}
	}
}

// gather lets those that wait go when they have waited long enough, if they do by
// then. It is called with the lock held.
func (b *batcher[E, R]) gather() {
	if b.timed {
		return
	}
	b.timed = true
	time.AfterFunc(gathering, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.timed, b.overdue = false, len(b.waiting) > 0
		b.depart()
	})
}

// load returns how many of those that wait go into the next request, and whether
// that is full. It is called with the lock held.
func (b *batcher[E, R]) load() (n int, full bool) {
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

// carry makes one request and hands out the answers.
func (b *batcher[E, R]) carry(ctx context.Context, load []*errand[E, R]) {
	var entries []E
	var late, sent []*errand[E, R]
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

// finish hands out the answers of a request, and sends what has waited for it.
func (b *batcher[E, R]) finish(load []*errand[E, R], answers []answer[R], err error) {
	b.mu.Lock()
	b.out--
	b.depart()
	b.mu.Unlock()
	for i, e := range load {
		switch {
		case err != nil:
			e.done(answer[R]{err: err, whole: true})
		case b.forgiving && answers[i].err == nil && e.isLate():
			e.done(answer[R]{err: &driver.Error{
				Code: driver.ErrUnavailable, Detail: "SQS answered after the time of the delivery was over, and may not have done it",
			}})
		default:
			e.done(answers[i])
		}
	}
}

// failuresOf is the error of a call whose entries, at these positions of a batch of
// n, got these answers; bad has the errors of the others.
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
