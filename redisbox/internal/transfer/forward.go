package transfer

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
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Dead letters go to another queue in three steps, each of which can be repeated: a
// message that is dead-lettered is kept here and noted in the outbox; it is added to the
// other queue, which remembers the arrival; and then it leaves this queue. Any process
// that finds dead letters in an outbox continues where another has stopped. So none is
// lost, and none arrives twice.

// Queues finds the queues that messages are transferred to.
type Queues interface {
	// Target returns the queue of that name, or nil if there is none.
	Target(ctx context.Context, name string) (*shard.Queue, error)
	// DeadLetterTo returns where the queue of that name forwards its dead letters, and ""
	// if it does not, or does not exist.
	DeadLetterTo(ctx context.Context, name string) (string, error)
	// StartForwarding makes a shard forward its dead letters. It does not wait.
	StartForwarding(ctx context.Context, s *shard.Shard)
}

// A Forwarder forwards the dead letters of one shard, and resumes moves of its messages that
// have stalled. It has no goroutine while there are none.
type Forwarder struct {
	shard  *shard.Shard
	queues Queues

	Mu         sync.Mutex  // guards forwarding
	forwarding *forwarding // nil if none is running

	resuming atomic.Bool // see resumeMoves
}

// NewForwarder returns the forwarder of a shard.
func NewForwarder(s *shard.Shard, queues Queues) *Forwarder {
	return &Forwarder{shard: s, queues: queues}
}

// Resume does what the answer of a call asks for: toForward dead letters wait, or moves have
// stalled if it is negative.
func (f *Forwarder) Resume(ctx context.Context, toForward int) {
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
func (f *Forwarder) forward(ctx context.Context) {
	for started := false; !started; { // a running one may not have seen the latest
		var running *forwarding
		running, started = f.Start(ctx)
		if !running.wait(ctx, running.started.Add(forwardPatience)) {
			return
		}
	}
}

// Start returns the running forwarding, or starts one.
func (f *Forwarder) Start(ctx context.Context) (running *forwarding, started bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.forwarding != nil {
		return f.forwarding, false
	}
	running = &forwarding{done: make(chan struct{}), started: time.Now()}
	f.forwarding = running
	ctx = context.WithoutCancel(ctx) // other callers wait for it too
	f.shard.Queue.Server.Running.Start(func() {
		f.forwardAll(ctx)
		f.Mu.Lock()
		f.forwarding = nil
		f.Mu.Unlock()
		close(running.done)
	})
	return running, true
}

// Await waits until the running forwarding is done, but not beyond limit. It reports
// whether there was one and it is done.
func (f *Forwarder) Await(ctx context.Context, limit time.Time) bool {
	f.Mu.Lock()
	running := f.forwarding
	f.Mu.Unlock()
	return running != nil && running.wait(ctx, limit)
}

// forwardAll forwards dead letters while some can be moved.
func (f *Forwarder) forwardAll(ctx context.Context) {
	for {
		moved, err := f.forwardPage(ctx)
		if err != nil && ctx.Err() == nil {
			q := f.shard.Queue
			q.Server.Logger.WarnContext(ctx, "cannot forward dead letters to another queue; they stay in the outbox",
				"queue", q.Name, "error", err)
		}
		if err != nil || moved == 0 {
			return
		}
	}
}

func (f *Forwarder) forwardPage(ctx context.Context) (moved int, err error) {
	s := f.shard
	name := s.Queue.Settings.Load().Config.DeadLetterTo
	dead, err := s.Outbox(ctx)
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
	parts := make(map[*shard.Shard]*shard.SendOp)
	var outcomes []string // id, death and outcome, for forward.lua
	for i := range dead {
		l := &dead[i]
		stays := target == nil || (keepExpired && reasonOf(l) == driver.ReasonExpired)
		if stays || !AddressDeadLetter(ctx, s.Queue.Name, target, parts, l) {
			outcomes = append(outcomes, l.ID, shard.Decimal(l.Score), "k")
		}
	}
	for to, part := range parts {
		outcomes, err = Accept(ctx, to, part, outcomes)
		if err != nil {
			return 0, err
		}
	}
	if err := s.Forwarded(ctx, outcomes); err != nil {
		return 0, err
	}
	for to, part := range parts {
		// An arrival that is not forgotten costs a little memory for a week.
		_, _ = to.Arrival(ctx, "f", true, part.Arrivals)
		if to.Queue != s.Queue && to.Queue.Settings.Load().Config.DeadLetterTo != "" {
			f.queues.StartForwarding(ctx, to) // the arrivals may have dead-lettered others
		}
	}
	return len(dead), nil
}

func reasonOf(m *shard.StoredMessage) driver.Reason {
	e, _ := shard.ReadEntry(m.Entry)
	return e.Reason
}

// keepsExpired reports whether expired messages stay here, because dead letters that go
// to target come back: an expired one would begin again with a new age, endlessly. It
// asks the server only if there are such messages.
func (f *Forwarder) keepsExpired(ctx context.Context, target string, dead []shard.StoredMessage) (bool, error) {
	if !slices.ContainsFunc(dead, func(l shard.StoredMessage) bool { return reasonOf(&l) == driver.ReasonExpired }) {
		return false, nil
	}
	seen := make(map[string]bool)
	for target != "" && !seen[target] {
		if target == f.shard.Queue.Name {
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

// AddressDeadLetter adds a dead letter of the queue called source to the part of the shard it goes to. It reports false if
// the dead letter is damaged, and so has to stay.
func AddressDeadLetter(ctx context.Context, source string, target *shard.Queue, parts map[*shard.Shard]*shard.SendOp, dead *shard.StoredMessage) bool {
	e, readable := shard.ReadEntry(dead.Entry)
	var m driver.Message
	if !readable || !e.ReadSent(&m, dead.ID, dead.Sent) {
		return false
	}
	attributes := maps.Clone(m.Attributes)
	m.Deliveries = e.Deliveries
	if attributes == nil {
		attributes = make(map[string]string, shard.ExtraAttributes)
	}
	attributes[driver.AttributeDeadReason] = string(e.Reason)
	attributes[driver.AttributeDeadSource] = source
	attributes[driver.AttributeDeadDeliveries] = strconv.Itoa(m.TotalDeliveries())
	delete(attributes, driver.AttributeDeadError)
	if e.LastError != "" {
		attributes[driver.AttributeDeadError] = e.LastError
	}
	msg := driver.Outgoing{
		Body: m.Body, Attributes: attributes, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID, Priority: e.Priority,
	}
	unique := ""
	if target.TakesKeys(msg.Group) {
		unique = e.Unique
	}
	to := target.ShardOfArrival(dead.ID, msg.Group, unique)
	part := parts[to]
	if part == nil {
		part = shard.NewSendOp(ctx, to)
		parts[to] = part
	}
	extra := target.Special(&msg)
	extra.Arrival, extra.Redrives, extra.Failure, extra.TTL = true, e.Redrives, e.LastError, 0
	extra.Unique = unique
	extra.Yield()                               // it must arrive
	extra.Token = shard.PackDoubles(dead.Score) // it may arrive more than once, each time with another death
	part.Add(0, dead.ID, &msg, extra)
	return true
}

// Accept adds dead letters of another queue, and appends the outcome of each to
// outcomes.
func Accept(ctx context.Context, s *shard.Shard, part *shard.SendOp, outcomes []string) ([]string, error) {
	err := s.RunDurably(ctx, &shard.Batch{Sends: []*shard.SendOp{part}}, true)
	gone := errors.Is(err, driver.ErrNotFound)
	if err == nil && strings.Contains(part.Codes, "f") {
		// No process may add it later that does not know that it was kept.
		part.Codes, err = s.Arrival(ctx, "r", true, part.Arrivals)
	}
	if err != nil && !gone {
		return nil, err
	}
	for i, id := range part.IDs {
		what := "m"
		if gone || (part.Codes != "" && part.Codes[i] == 'f') {
			what = "k"
		}
		death := shard.DoubleAt(part.Arrivals[i][len(id):], 0)
		outcomes = append(outcomes, id, shard.Decimal(death), what)
	}
	return outcomes, nil
}
