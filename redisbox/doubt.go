package redisbox

import (
	"container/list"
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

// A replica's confirmation can be worth nothing. A primary that has hung for longer
// than the node timeout is replaced, and when it wakes up it does what it was asked
// meanwhile, before it hears of that. A replica that has not heard either confirms,
// and then both throw it away to follow the new primary. Nobody can be asked: the
// two believe what they say.
//
// But a hang shows: calls to that server have been without an answer for long. So
// what is confirmed while one of them was, and for a while after, is doubtful. It is
// asked again, which does nothing twice, until the server has had the time to learn
// what it is.

const (
	// doubtAfter is how long a call may take before the server may have been
	// replaced meanwhile: less than any sensible node timeout.
	doubtAfter = time.Second
	// doubtFor is how long a server may need to learn that it was.
	doubtFor = time.Second
)

// errDoubtful: replicas have confirmed, and may have followed a primary of the past.
var errDoubtful = errors.New("the server may have been replaced before it answered")

// A line is the calls that are made to wherever some keys are.
type line struct {
	mu       sync.Mutex // guards the fields below
	calls    list.List  // when each began that has no answer, earliest first
	doubtful time.Time  // until then
}

// begin notes a call.
func (l *line) begin(now time.Time) *list.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls.PushBack(now)
}

// end notes that a call has its answer, or was given up, and reports whether the
// answer is doubtful.
func (l *line) end(call *list.Element, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	earliest, _ := l.calls.Front().Value.(time.Time)
	l.calls.Remove(call)
	if now.Sub(earliest) >= doubtAfter {
		l.doubtful = now.Add(doubtFor)
	}
	return now.Before(l.doubtful)
}

// lines are those of a backend. Keys of several queues can share one: then they
// share their doubts, which costs time and nothing else.
type lines struct {
	seed maphash.Seed
	each [256]line
}

func newLines() *lines { return &lines{seed: maphash.MakeSeed()} }

// to returns the line of a key.
func (l *lines) to(key string) *line {
	return &l.each[maphash.String(l.seed, key)%uint64(len(l.each))]
}
