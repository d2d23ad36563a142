package redisbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Dead letters go to another queue in three steps, each of which can be repeated: a
// message that is dead-lettered is kept here and noted in the outbox; it is added to the
// other queue, which remembers the arrival; and then it leaves this queue. Any process
// that finds dead letters in an outbox continues where another has stopped. So none is
// lost, and none arrives twice.

// forwardPatience is how long calls wait for dead letters to be forwarded: long for
// servers that answer, and short for one that hangs.
const forwardPatience = time.Second

// A forwarding forwards the dead letters of a shard, for all calls that found some.
type forwarding struct {
	done    chan struct{} // closed when it is finished
	started time.Time
}

// wait waits until it is done, but not beyond limit, and reports whether it is.
func (f *forwarding) wait(ctx context.Context, limit time.Time) bool {
	timer := time.NewTimer(time.Until(limit))
	defer timer.Stop()
	select {
	case <-f.done:
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
func (s *shard) forward(ctx context.Context) {
	for started := false; !started; { // a running one may not have seen the latest
		var f *forwarding
		f, started = s.startForwarding(ctx)
		if !f.wait(ctx, f.started.Add(forwardPatience)) {
			return
		}
	}
}

// startForwarding returns the running forwarding, or starts one.
func (s *shard) startForwarding(ctx context.Context) (f *forwarding, started bool) {
	s.forwardMu.Lock()
	defer s.forwardMu.Unlock()
	if s.forwarding != nil {
		return s.forwarding, false
	}
	f = &forwarding{done: make(chan struct{}), started: time.Now()}
	s.forwarding = f
	ctx = context.WithoutCancel(ctx) // other callers wait for it too
	s.queue.backend.running.start(func() {
		s.forwardAll(ctx)
		s.forwardMu.Lock()
		s.forwarding = nil
		s.forwardMu.Unlock()
		close(f.done)
	})
	return f, true
}

// awaitForwarding waits until the running forwarding is done, but not beyond limit. It
// reports whether there was one and it is done.
func (s *shard) awaitForwarding(ctx context.Context, limit time.Time) bool {
	s.forwardMu.Lock()
	f := s.forwarding
	s.forwardMu.Unlock()
	return f != nil && f.wait(ctx, limit)
}

// forwardAll forwards dead letters while some can be moved.
func (s *shard) forwardAll(ctx context.Context) {
	for {
		moved, err := s.forwardPage(ctx)
		if err != nil && ctx.Err() == nil {
			s.queue.backend.options.Logger.WarnContext(ctx, "cannot forward dead letters to another queue; they stay in the outbox",
				"queue", s.queue.name, "error", err)
		}
		if err != nil || moved == 0 {
			return
		}
	}
}

func (s *shard) forwardPage(ctx context.Context) (moved int, err error) {
	name := s.queue.settings.Load().config.DeadLetterTo
	dead, err := s.peek(ctx, "outbox", "-inf", 0, peekPage, false, nil)
	if err != nil || len(dead) == 0 || name == "" {
		return 0, err
	}
	target, err := s.queue.backend.target(ctx, name)
	if err != nil {
		return 0, err
	}
	keepExpired, err := s.keepsExpired(ctx, name, dead)
	if err != nil {
		return 0, err
	}
	parts := make(map[*shard]*sendOp)
	var outcomes []string // id, death and outcome, for forward.lua
	for i := range dead {
		l := &dead[i]
		stays := target == nil || (keepExpired && l.reason() == driver.ReasonExpired)
		if stays || !s.address(ctx, target, parts, l) {
			outcomes = append(outcomes, l.id, decimal(l.score), "k")
		}
	}
	for to, part := range parts {
		outcomes, err = to.accept(ctx, part, outcomes)
		if err != nil {
			return 0, err
		}
	}
	if _, err := s.callDurably(ctx, forwardScript, true, outcomes...); err != nil {
		return 0, err
	}
	for to, part := range parts {
		// An arrival that is not forgotten costs a little memory for a week.
		_, _ = to.arrival(ctx, "f", true, part.arrivals)
		if to.queue != s.queue && to.queue.settings.Load().config.DeadLetterTo != "" {
			to.startForwarding(ctx) // the arrivals may have dead-lettered others
		}
	}
	return len(dead), nil
}

func (m *storedMessage) reason() driver.Reason {
	e, _ := readEntry(m.entry)
	return e.reason
}

// keepsExpired reports whether expired messages stay here, because dead letters that go
// to target come back: an expired one would begin again with a new age, endlessly. It
// asks the server only if there are such messages.
func (s *shard) keepsExpired(ctx context.Context, target string, dead []storedMessage) (bool, error) {
	if !slices.ContainsFunc(dead, func(l storedMessage) bool { return l.reason() == driver.ReasonExpired }) {
		return false, nil
	}
	seen := make(map[string]bool)
	for target != "" && !seen[target] {
		if target == s.queue.name {
			return true, nil
		}
		seen[target] = true
		state, err := s.queue.backend.look(ctx, target)
		if err != nil || state.status != "ok" {
			return false, err
		}
		target = state.config.DeadLetterTo
	}
	return false, nil
}

// target returns the queue of that name, or nil.
func (b *Backend) target(ctx context.Context, name string) (*queue, error) {
	state, err := b.look(ctx, name)
	if err != nil || state.status != "ok" {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[name]; q != nil && q.incarnation == state.incarnation && !q.isEnded.Load() {
		return q, nil
	}
	q := newQueue(b, name, state)
	for _, s := range q.shards {
		s.clock.saw(0, state.wall, 0)
	}
	return q, nil
}

// address adds a dead letter to the part of the shard it goes to. It reports false if
// the dead letter is damaged, and so has to stay.
func (s *shard) address(ctx context.Context, target *queue, parts map[*shard]*sendOp, dead *storedMessage) bool {
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
	attributes[driver.AttributeDeadSource] = s.queue.name
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

// shardOfArrival returns the shard of a message from another queue: always the same
// one, because that shard remembers the arrival.
func (q *queue) shardOfArrival(id, group string) *shard {
	if group != "" || q.settings.Load().config.StrictGroups {
		return q.shardOf(group)
	}
	return q.shardOf(id)
}

// arrival calls arrival.lua, and returns a code for each arrival.
func (s *shard) arrival(ctx context.Context, what string, within bool, names []string) (codes string, err error) {
	a, err := s.callDurably(ctx, arrivalScript, within, append([]string{what}, names...)...)
	if err != nil {
		return "", err
	}
	if codes, err = a.rest[0].ToString(); err != nil || len(codes) != len(names) {
		return "", unreadableAnswer(err)
	}
	return codes, nil
}

// accept adds dead letters of another queue, and appends the outcome of each to
// outcomes.
func (s *shard) accept(ctx context.Context, part *sendOp, outcomes []string) ([]string, error) {
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
