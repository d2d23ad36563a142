package redisbox

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A minder watches one shard for this process, from the first receive on. It
// listens for what the scripts announce, and sleeps until the next deadline. So
// receivers that wait are woken by a send in whatever process, and what falls
// due happens although nobody asks. While nothing happens it does nothing, but
// for a look every now and then in case an announcement was lost.
type minder struct {
	shard *shard

	minds   atomic.Bool
	ear     *listener
	look    chan struct{} // holds one: look now
	change  chan struct{} // holds one: the configuration has changed
	earlier chan struct{} // holds one: there is an earlier deadline

	mu     sync.Mutex // guards the fields below
	due    float64    // the next deadline, on the shard's axis
	cancel context.CancelFunc
	alarm  *time.Timer // see remind
	rests  bool        // for good
}

// lookEvery is how long an announcement that was lost can stay unnoticed. The
// known ways to lose one, a connection that is cut and a failover, are noticed
// at once.
const lookEvery = 30 * time.Second

func (m *minder) init(s *shard) {
	m.shard = s
	m.due = math.Inf(1)
	q := s.queue
	m.ear = newListener(q.backend, channel(q.backend.options.Prefix, q.name, s.number), m.hear, func() { poke(m.look) })
	m.look, m.change, m.earlier = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
}

// start begins to watch.
func (m *minder) start(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.minds.Store(true)
	m.shard.queue.backend.running.start(func() { m.ear.run(ctx) })
	m.shard.queue.backend.running.start(func() { m.run(ctx) })
}

// stop ends the watching. It does not wait.
func (m *minder) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.minds.Store(false)
	m.rests = true
	if m.cancel != nil {
		m.cancel()
	}
	if m.alarm != nil {
		m.alarm.Stop()
	}
}

func poke(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// expect says that something happens at due.
func (m *minder) expect(ctx context.Context, due float64) {
	if !m.minds.Load() {
		m.remind(ctx, due)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if due < m.due {
		m.due = due
		poke(m.earlier)
	}
}

// remind has a shard that nobody minds looked at when it is due, if that may kill
// messages that go to another queue: somebody may wait for them there. Of
// everything else that falls due nobody knows before he looks. Until it is due
// there is a timer and no goroutine.
func (m *minder) remind(ctx context.Context, due float64) {
	q := m.shard.queue
	if math.IsInf(due, 1) || q.settings.Load().config.DeadLetterTo == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if due >= m.due || m.rests {
		return
	}
	m.due = due
	if m.alarm != nil {
		m.alarm.Stop()
	}
	ctx = context.WithoutCancel(ctx)
	m.alarm = time.AfterFunc(max(m.shard.clock.until(due), 0), func() {
		if !m.minds.Load() {
			q.backend.running.start(func() { m.tend(ctx) })
		}
	})
}

// next returns when something happens by itself.
func (m *minder) next() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.due
}

// hear acts on one announcement. It does not block.
func (m *minder) hear(ctx context.Context, message string) {
	q := m.shard.queue
	word, number, _ := strings.Cut(message, " ")
	switch word {
	case "ready":
		n, _ := strconv.Atoi(number)
		q.nextTake.Store(uint64(m.shard.number))
		q.waiters.wake(n)
	case "due":
		if due, err := strconv.ParseFloat(number, 64); err == nil {
			m.expect(ctx, due)
		}
	case "config":
		poke(m.change)
	case "gone":
		q.end(driver.ErrNotFound)
	}
}

// run looks when something is due, and when something may have been missed.
func (m *minder) run(ctx context.Context) {
	regular := time.NewTicker(lookEvery)
	defer regular.Stop()
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			m.tend(ctx)
		case <-regular.C:
			m.tend(ctx)
		case <-m.look:
			m.tend(ctx)
		case <-m.change:
			m.shard.queue.reload(ctx, m.shard, -1)
		case <-m.earlier:
		}
		timer.Reset(max(m.shard.clock.until(m.next()), 0))
	}
}

// tend has somebody look at the shard: a receiver that waits, or else nobody in
// particular, for what happens by itself to happen.
func (m *minder) tend(ctx context.Context) {
	q := m.shard.queue
	m.mu.Lock()
	if m.shard.clock.until(m.due) <= 0 {
		m.due = math.Inf(1) // whoever looks will tell
	}
	m.mu.Unlock()
	if q.waiters.count.Load() > 0 {
		q.nextTake.Store(uint64(m.shard.number))
		q.waiters.wake(1)
		return
	}
	if _, err := m.shard.call(ctx, statsScript, how{}, digit(m.minds.Load())); err != nil && ctx.Err() == nil {
		q.backend.options.Logger.DebugContext(ctx, "cannot look after a queue", "queue", q.name, "error", err)
	}
}
