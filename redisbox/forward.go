package redisbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Dead letters go to another queue in three steps, each of which can be repeated: a
// message that is dead-lettered is kept here and noted in the outbox; it is added to the
// other queue, which remembers the arrival; and then it leaves this queue. Any process
// that finds dead letters in an outbox continues where another has stopped. So none is
// lost, and none arrives twice.

// transferQueues finds the queues that messages are transferred to.
type transferQueues interface {
	// Target returns the queue of that name, or nil if there is none.
	Target(ctx context.Context, name string) (*shardQueue, error)
	// DeadLetterTo returns where the queue of that name forwards its dead letters, and ""
	// if it does not, or does not exist.
	DeadLetterTo(ctx context.Context, name string) (string, error)
	// StartForwarding makes a shard forward its dead letters. It does not wait.
	StartForwarding(ctx context.Context, s *shard)
}

// A forwarder forwards the dead letters of one shard, and resumes moves of its messages that
// have stalled. It has no goroutine while there are none.
type forwarder struct {
	shard  *shard
	queues transferQueues

	mu         sync.Mutex  // guards forwarding
	forwarding *forwarding // nil if none is running

	resuming atomic.Bool // see resumeMoves
}

func newForwarder(s *shard, queues transferQueues) *forwarder {
	return &forwarder{shard: s, queues: queues}
}

// resume does what the answer of a call asks for: toForward dead letters wait, or moves have
// stalled if it is negative.
func (f *forwarder) resume(ctx context.Context, toForward int) {
	switch {
	case toForward > 0:
		f.forward(ctx)
	case toForward < 0:
		f.resumeMoves(ctx)
	}
}

// forwardPatience is how long calls wait for dead letters to be forwarded: long for
// servers that answer, and short for one that hangs.
const forwardPatience = time.Second

// A forwarding forwards the dead letters of a shard, for all calls that found some.
type forwarding struct {
	done    chan struct{} // closed when it is finished
	started time.Time
}

// wait waits until it is done, but not beyond limit, and reports whether it is.
func (r *forwarding) wait(ctx context.Context, limit time.Time) bool {
	timer := time.NewTimer(time.Until(limit))
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// forward moves dead letters of the shard to another queue. Those that cannot be moved
// now stay in the outbox.
//
// Mostly they have left when it returns. It does not wait for long: the server of the
// other queue may hang, and that must not hold up this one.
func (f *forwarder) forward(ctx context.Context) {
	for started := false; !started; { // a running one may not have seen the latest
		var running *forwarding
		running, started = f.start(ctx)
		if !running.wait(ctx, running.started.Add(forwardPatience)) {
			return
		}
	}
}

// start returns the running forwarding, or starts one.
func (f *forwarder) start(ctx context.Context) (running *forwarding, started bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forwarding != nil {
		return f.forwarding, false
	}
	running = &forwarding{done: make(chan struct{}), started: time.Now()}
	f.forwarding = running
	ctx = context.WithoutCancel(ctx) // other callers wait for it too
	f.shard.queue.server.running.start(func() {
		f.forwardAll(ctx)
		f.mu.Lock()
		f.forwarding = nil
		f.mu.Unlock()
		close(running.done)
	})
	return running, true
}

// await waits until the running forwarding is done, but not beyond limit. It reports
// whether there was one and it is done.
func (f *forwarder) await(ctx context.Context, limit time.Time) bool {
	f.mu.Lock()
	running := f.forwarding
	f.mu.Unlock()
	return running != nil && running.wait(ctx, limit)
}

// forwardAll forwards dead letters while some can be moved.
func (f *forwarder) forwardAll(ctx context.Context) {
	for {
		moved, err := f.forwardPage(ctx)
		if err != nil && ctx.Err() == nil {
			q := f.shard.queue
			q.server.logger.WarnContext(ctx, "cannot forward dead letters to another queue; they stay in the outbox",
				"queue", q.name, "error", err)
		}
		if err != nil || moved == 0 {
			return
		}
	}
}

func (f *forwarder) forwardPage(ctx context.Context) (moved int, err error) {
	s := f.shard
	name := s.queue.settings.Load().config.DeadLetterTo
	dead, err := s.outbox(ctx)
	if err != nil || len(dead) == 0 || name == "" {
		return 0, err
	}
	target, err := f.queues.Target(ctx, name)
	if err != nil {
		return 0, err
	}
	keepExpired, err := f.keepsExpired(ctx, name, dead)
	if err != nil {
		return 0, err
	}
	parts := make(map[*shard]*sendOp)
	var outcomes []string // id, death and outcome, for forward.lua
	for i := range dead {
		l := &dead[i]
		stays := target == nil || (keepExpired && reasonOf(l) == driver.ReasonExpired)
		if stays || !addressDeadLetter(ctx, s.queue.name, target, parts, l) {
			outcomes = append(outcomes, l.id, decimal(l.score), "k")
		}
	}
	for to, part := range parts {
		outcomes, err = accept(ctx, to, part, outcomes)
		if err != nil {
			return 0, err
		}
	}
	if err := s.forwarded(ctx, outcomes); err != nil {
		return 0, err
	}
	for to, part := range parts {
		// An arrival that is not forgotten costs a little memory for a week.
		_, _ = to.arrival(ctx, "f", true, part.arrivals)
		if to.queue != s.queue && to.queue.settings.Load().config.DeadLetterTo != "" {
			f.queues.StartForwarding(ctx, to) // the arrivals may have dead-lettered others
		}
	}
	return len(dead), nil
}

func reasonOf(m *storedMessage) driver.Reason {
	e, _ := readEntry(m.entry)
	return e.reason
}

// keepsExpired reports whether expired messages stay here, because dead letters that go
// to target come back: an expired one would begin again with a new age, endlessly. It
// asks the server only if there are such messages.
func (f *forwarder) keepsExpired(ctx context.Context, target string, dead []storedMessage) (bool, error) {
	if !slices.ContainsFunc(dead, func(l storedMessage) bool { return reasonOf(&l) == driver.ReasonExpired }) {
		return false, nil
	}
	seen := make(map[string]bool)
	for target != "" && !seen[target] {
		if target == f.shard.queue.name {
			return true, nil
		}
		seen[target] = true
		var err error
		if target, err = f.queues.DeadLetterTo(ctx, target); err != nil {
			return false, err
		}
	}
	return false, nil
}

// addressDeadLetter adds a dead letter of the queue called source to the part of the shard it goes to. It reports false if
// the dead letter is damaged, and so has to stay.
func addressDeadLetter(ctx context.Context, source string, target *shardQueue, parts map[*shard]*sendOp, dead *storedMessage) bool {
	e, readable := readEntry(dead.entry)
	var m driver.Message
	if !readable || !readSent(&m, dead.id, dead.sent) {
		return false
	}
	attributes := maps.Clone(m.Attributes)
	earlier := driver.EarlierDeliveries(attributes)
	if attributes == nil {
		attributes = make(map[string]string, extraAttributes)
	}
	attributes[driver.AttributeDeadReason] = string(e.reason)
	attributes[driver.AttributeDeadSource] = source
	attributes[driver.AttributeDeadDeliveries] = strconv.Itoa(earlier + e.deliveries)
	delete(attributes, driver.AttributeDeadError)
	if e.lastError != "" {
		attributes[driver.AttributeDeadError] = e.lastError
	}
	msg := driver.Outgoing{
		Body: m.Body, Attributes: attributes, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID,
	}
	to := target.shardOfArrival(dead.id, msg.Group)
	part := parts[to]
	if part == nil {
		part = newSendOp(ctx, to)
		parts[to] = part
	}
	extra := target.special(&msg)
	extra.arrival, extra.redrives, extra.failure = true, e.redrives, e.lastError
	extra.token = packDoubles(dead.score) // it may arrive more than once, each time with another death
	part.add(0, dead.id, &msg, extra)
	return true
}

// accept adds dead letters of another queue, and appends the outcome of each to
// outcomes.
func accept(ctx context.Context, s *shard, part *sendOp, outcomes []string) ([]string, error) {
	err := s.runDurably(ctx, &shardBatch{sends: []*sendOp{part}}, true)
	gone := errors.Is(err, driver.ErrNotFound)
	if err == nil && strings.Contains(part.codes, "f") {
		// No process may add it later that does not know that it was kept.
		part.codes, err = s.arrival(ctx, "r", true, part.arrivals)
	}
	if err != nil && !gone {
		return nil, err
	}
	for i, id := range part.ids {
		what := "m"
		if gone || (part.codes != "" && part.codes[i] == 'f') {
			what = "k"
		}
		death := doubleAt(part.arrivals[i][len(id):], 0)
		outcomes = append(outcomes, id, decimal(death), what)
	}
	return outcomes, nil
}
