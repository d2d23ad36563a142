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

// Dead letters go to another queue in three steps, each of which can be repeated:
// the letter is kept here and noted in the outbox when it dies; it is added to
// the other queue, which remembers that it has arrived; and then it leaves this
// one. Whoever finds letters in an outbox goes on where another has stopped. So
// none is lost, and none arrives twice.

// forwardPatience is for how long calls wait for letters to be moved. It is long for
// servers that answer and short for one that hangs.
const forwardPatience = time.Second

// A forwarding moves the letters of a shard, for all whose calls found some.
type forwarding struct {
	done    chan struct{} // closed when it has moved what can be moved
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

// forward moves the dead letters of the shard that are to go to another queue.
// What cannot be moved now is left for later.
//
// Mostly they have gone when it returns. It does not wait for long: the server of the
// other queue may not answer, and that must not hold up this one.
func (s *shard) forward(ctx context.Context) {
	for started := false; !started; { // one that is under way may not have seen the latest
		var f *forwarding
		f, started = s.startForwarding(ctx)
		if !f.wait(ctx, f.started.Add(forwardPatience)) {
			return
		}
	}
}

// startForwarding returns the forwarding that is under way, or starts one.
func (s *shard) startForwarding(ctx context.Context) (f *forwarding, started bool) {
	s.forwardMu.Lock()
	defer s.forwardMu.Unlock()
	if s.forwarding != nil {
		return s.forwarding, false
	}
	f = &forwarding{done: make(chan struct{}), started: time.Now()}
	s.forwarding = f
	ctx = context.WithoutCancel(ctx) // it is not only for this caller
	s.queue.backend.running.start(func() {
		s.forwardAll(ctx)
		s.forwardMu.Lock()
		s.forwarding = nil
		s.forwardMu.Unlock()
		close(f.done)
	})
	return f, true
}

// awaitForwarding waits until the forwarding that is under way is done, but not
// beyond limit. It reports whether there was one that is done.
func (s *shard) awaitForwarding(ctx context.Context, limit time.Time) bool {
	s.forwardMu.Lock()
	f := s.forwarding
	s.forwardMu.Unlock()
	return f != nil && f.wait(ctx, limit)
}

// forwardAll moves letters while there are any that can be moved.
func (s *shard) forwardAll(ctx context.Context) {
	for {
		moved, err := s.forwardPage(ctx)
		if err != nil && ctx.Err() == nil {
			s.queue.backend.options.Logger.WarnContext(ctx, "dead letters could not be moved to another queue and wait",
				"queue", s.queue.name, "error", err)
		}
		if err != nil || moved == 0 {
			return
		}
	}
}

func (s *shard) forwardPage(ctx context.Context) (moved int, err error) {
	name := s.queue.settings.Load().config.DeadLetterTo
	letters, err := s.peek(ctx, "outbox", "-inf", 0, peekPage, false, nil)
	if err != nil || len(letters) == 0 || name == "" {
		return 0, err
	}
	target, err := s.queue.backend.target(ctx, name)
	if err != nil {
		return 0, err
	}
	keepExpired, err := s.keepsExpired(ctx, name, letters)
	if err != nil {
		return 0, err
	}
	parts := make(map[*shard]*sending)
	var verdicts []string // id, death and what has become of it, for forward.lua
	for i := range letters {
		l := &letters[i]
		stays := target == nil || (keepExpired && l.reason() == driver.ReasonExpired)
		if stays || !s.address(ctx, target, parts, l) {
			verdicts = append(verdicts, l.id, decimal(l.score), "k")
		}
	}
	for to, part := range parts {
		verdicts, err = to.accept(ctx, part, verdicts)
		if err != nil {
			return 0, err
		}
	}
	if _, err := s.callDurably(ctx, forwardScript, true, verdicts...); err != nil {
		return 0, err
	}
	for to, part := range parts {
		// An arrival that is not forgotten costs a little memory for a week.
		_, _ = to.arrival(ctx, "f", true, part.arrivals)
		if to.queue != s.queue && to.queue.settings.Load().config.DeadLetterTo != "" {
			to.startForwarding(ctx) // what arrived may have pushed others out
		}
	}
	return len(letters), nil
}

func (l *item) reason() driver.Reason {
	e, _ := readEntry(l.entry)
	return e.reason
}

// keepsExpired reports whether letters that have expired stay here, because dead letters
// that go to target come back: an expired one would begin again with a new age, and
// never end. It asks only if there are such letters.
func (s *shard) keepsExpired(ctx context.Context, target string, letters []item) (bool, error) {
	if !slices.ContainsFunc(letters, func(l item) bool { return l.reason() == driver.ReasonExpired }) {
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

// target returns the queue that dead letters go to, and nil if there is none.
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

// address adds a letter to the part of the shard it goes to. It reports false if
// the letter is damaged, and so has to stay.
func (s *shard) address(ctx context.Context, target *queue, parts map[*shard]*sending, letter *item) bool {
	e, readable := readEntry(letter.entry)
	var m driver.Message
	if !readable || !readSent(&m, letter.id, letter.sent) {
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
	to := target.shardOfArrival(letter.id, msg.Group)
	part := parts[to]
	if part == nil {
		part = newSending(ctx, to)
		parts[to] = part
	}
	extra := target.special(&msg)
	extra.arrival, extra.redrives, extra.failure = true, e.redrives, e.lastError
	extra.token = packDoubles(letter.score) // it may come there more than once, each time by another death
	part.add(0, letter.id, &msg, extra)
	return true
}

// shardOfArrival is the shard of a message that comes from another queue: the same if it
// is added again, because that shard remembers it.
func (q *queue) shardOfArrival(id, group string) *shard {
	if group != "" || q.settings.Load().config.StrictGroups {
		return q.shardOf(group)
	}
	return q.shardOf(id)
}

// arrival calls arrival.lua, and returns a letter for each of these arrivals.
func (s *shard) arrival(ctx context.Context, what string, within bool, names []string) (letters string, err error) {
	a, err := s.callDurably(ctx, arrivalScript, within, append([]string{what}, names...)...)
	if err != nil {
		return "", err
	}
	if letters, err = a.rest[0].ToString(); err != nil || len(letters) != len(names) {
		return "", unreadable(err)
	}
	return letters, nil
}

// accept adds letters of another queue, and adds to verdicts what has become of
// each.
func (s *shard) accept(ctx context.Context, part *sending, verdicts []string) ([]string, error) {
	err := s.serveDurably(ctx, &load{sends: []*sending{part}}, true)
	gone := errors.Is(err, driver.ErrNotFound)
	if err == nil && strings.Contains(part.letters, "f") {
		// Nobody may add it later who does not know that it has stayed at home.
		part.letters, err = s.arrival(ctx, "r", true, part.arrivals)
	}
	if err != nil && !gone {
		return nil, err
	}
	for i, id := range part.ids {
		what := "m"
		if gone || (part.letters != "" && part.letters[i] == 'f') {
			what = "k"
		}
		death := doubleAt(part.arrivals[i][len(id):], 0)
		verdicts = append(verdicts, id, decimal(death), what)
	}
	return verdicts, nil
}
