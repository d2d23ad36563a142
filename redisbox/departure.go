package redisbox

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A message moves to another queue in three steps, each of which can be repeated: it
// is taken out here and noted as moving; it is added to the other queue, which
// remembers that it has arrived, or refuses it for good; and then it leaves this one,
// or is put back. What becomes of it is decided in the second step and nowhere else,
// so it does not matter who goes on where another has stopped, nor how many do. While
// it moves it counts as in flight here, and nobody else gets it.

const (
	// departFor is how long a message is noted as moving before somebody else may go on
	// with it.
	departFor = 15 * time.Second
	// departPage bounds how many move at a time.
	departPage = 100
)

// A departing is a message that was taken out of a shard to be moved.
type departing struct {
	item
	entry   entry
	target  string // who it moves to, see targetNote
	resumed bool   // it was taken out by somebody else, who has stalled
}

// targetNote names the queue that messages move to, and which of those that were called
// so: what another has refused or taken says nothing about this one.
func targetNote(q *queue) string { return q.incarnation + " " + q.name }

// departRequest says which messages are to be taken out.
type departRequest struct {
	target string
	hold   time.Duration
	last   float64  // the latest place; 0: any
	limit  int      // how many at most
	named  []string // ids and places; nil: the first
}

// depart calls depart.lua. It returns the latest place that was given out, and whether
// there may be more than it took.
func (s *shard) depart(ctx context.Context, r departRequest) (out []departing, last float64, more bool, err error) {
	nonce := newNonce()
	args := append([]string{
		strconv.FormatUint(nonce, 10), r.target, decimal(micros(r.hold)), decimal(r.last),
		strconv.Itoa(r.limit), strconv.Itoa(peekBytes),
	}, r.named...)
	a, err := s.callDurably(ctx, departScript, true, args...)
	if err != nil {
		return nil, 0, false, err
	}
	texts := make([]string, len(a.rest))
	for i := range a.rest {
		if i == 1 { // a number
			continue
		}
		if texts[i], err = a.rest[i].ToString(); err != nil {
			return nil, 0, false, unreadable(err)
		}
	}
	left, err := a.rest[1].AsInt64()
	if err != nil {
		return nil, 0, false, unreadable(err)
	}
	for rest := texts[2:]; len(rest) >= 3; rest = rest[3:] {
		d := departing{item: item{id: rest[0], sent: rest[2]}}
		if d.entry, _ = readEntry(rest[1]); d.entry.nonce == 0 {
			return nil, 0, false, unreadable(nil)
		}
		d.target, d.resumed = d.entry.errorType, d.entry.nonce&^(noncesACall-1) != nonce
		out = append(out, d)
	}
	return out, number(texts[0]), left != 0, nil
}

// A crossing brings messages that were taken out to where they move, and says here what
// has become of them.
type crossing struct {
	from    *shard
	targets *targets
	parts   map[*shard]*crossingPart
	// verdicts are what departed.lua is told, and decided the messages they are about.
	verdicts []string
	decided  []*departing
}

// A crossingPart is what goes to one shard.
type crossingPart struct {
	sending *sending
	moves   []*departing // in the same order
}

// cross moves messages, and returns how many have moved by it. Its error is the first
// trouble of a message whose target is to; with others it is left to whoever comes by.
func (s *shard) cross(ctx context.Context, all *targets, out []departing, to string) (moved int, err error) {
	c := crossing{from: s, targets: all, parts: make(map[*shard]*crossingPart)}
	trouble := func(target string, problem error) {
		if problem != nil && target == to && err == nil {
			err = problem
		}
	}
	for i := range out {
		trouble(out[i].target, c.address(ctx, &out[i]))
	}
	for target, part := range c.parts {
		trouble(targetNote(target.queue), c.deliver(ctx, target, part))
	}
	n, problem := c.finish(ctx)
	if problem != nil {
		return n, problem
	}
	for target, part := range c.parts {
		// An arrival that is not forgotten costs a little memory for a week.
		_, _ = target.arrival(ctx, "f", true, part.sending.arrivals)
	}
	return n, err
}

func (c *crossing) decide(d *departing, what string) {
	c.decided = append(c.decided, d)
	c.verdicts = append(c.verdicts, d.id, strconv.FormatUint(d.entry.nonce, 10), what)
}

// address adds a message to the part of the shard it goes to.
func (c *crossing) address(ctx context.Context, d *departing) error {
	target, err := c.targets.noted(ctx, d.target)
	if err != nil {
		return err
	}
	if target == nil {
		c.decide(d, "k")
		return c.gone(d)
	}
	var m driver.Message
	if !readSent(&m, d.id, d.sent) {
		c.decide(d, "d")
		return nil
	}
	for _, attribute := range []string{
		driver.AttributeDeadReason, driver.AttributeDeadSource, driver.AttributeDeadDeliveries, driver.AttributeDeadError,
	} {
		delete(m.Attributes, attribute) // the map is ours
	}
	msg := driver.Outgoing{
		Body: m.Body, Attributes: m.Attributes, Group: m.Group, ReplyTo: m.ReplyTo, CorrelationID: m.CorrelationID,
	}
	to := target.shardOfArrival(d.id, msg.Group)
	part := c.parts[to]
	if part == nil {
		part = &crossingPart{sending: newSending(ctx, to)}
		c.parts[to] = part
	}
	extra := target.special(&msg)
	extra.arrival, extra.ordered, extra.token = true, true, packDoubles(float64(d.entry.nonce))
	extra.redrives, extra.first, extra.failure = d.entry.redrives, d.entry.first, d.entry.lastError
	part.sending.addSent(0, d.id, m.EnqueuedAt.UnixNano(), &msg, extra)
	part.moves = append(part.moves, d)
	return nil
}

func (c *crossing) gone(d *departing) error {
	_, name, _ := strings.Cut(d.target, " ")
	return &driver.Error{Code: driver.ErrNotFound, Detail: name + " is not there any more"}
}

// deliver adds messages to a shard, and decides by its answer what becomes of them. With
// an error of which that cannot be said they stay as they are, noted as moving.
func (c *crossing) deliver(ctx context.Context, to *shard, part *crossingPart) error {
	err := to.serveDurably(ctx, &load{sends: []*sending{part.sending}}, true)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		for _, d := range part.moves {
			c.decide(d, "k")
		}
		return c.gone(part.moves[0])
	case errors.Is(err, driver.ErrFull): // out of memory
		part.sending.letters = strings.Repeat("f", len(part.moves))
	case err != nil:
		return err
	}
	letters := part.sending.letters
	if first := strings.IndexByte(letters, 'f'); first >= 0 {
		// Nobody may add them later who does not know that they were put back.
		refused, err := to.arrival(ctx, "r", true, part.sending.arrivals[first:])
		if err != nil {
			return err
		}
		letters = letters[:first] + refused
	}
	full := false
	for i, d := range part.moves {
		if letters != "" && letters[i] == 'f' {
			c.decide(d, "k")
			full = true
			continue
		}
		c.decide(d, "m")
	}
	if full {
		return &driver.Error{Code: driver.ErrFull, Detail: to.queue.name + " is full", RetryAfter: retryAfter}
	}
	return nil
}

// finish says here what has become of the messages, and returns how many have moved. One
// that was taken out by somebody else counts for whoever was first to say so.
func (c *crossing) finish(ctx context.Context) (moved int, err error) {
	if len(c.verdicts) == 0 {
		return 0, nil
	}
	a, err := c.from.callDurably(ctx, departedScript, true, c.verdicts...)
	if err != nil {
		return 0, err
	}
	letters, err := a.rest[0].ToString()
	if err != nil || 3*len(letters) != len(c.verdicts) {
		return 0, unreadable(err)
	}
	for i, d := range c.decided {
		if c.verdicts[3*i+2] == "m" && (letters[i] == 's' || !d.resumed) {
			moved++
		}
	}
	return moved, nil
}

// resumeMoves goes on with moves that somebody else has not finished. It does not wait.
func (s *shard) resumeMoves(ctx context.Context) {
	if s.resuming.Swap(true) {
		return
	}
	ctx = context.WithoutCancel(ctx) // it is not for this caller
	s.queue.backend.running.start(func() {
		defer s.resuming.Store(false)
		for more := true; more; {
			out, _, left, err := s.depart(ctx, departRequest{limit: departPage, hold: departFor})
			if err == nil && len(out) > 0 {
				_, err = s.cross(ctx, s.queue.backend.newTargets(), out, out[0].target)
			}
			if err != nil {
				s.queue.backend.options.Logger.WarnContext(ctx, "messages that were being moved to another queue wait",
					"queue", s.queue.name, "error", err)
			}
			more = err == nil && (left || len(out) == departPage)
		}
	})
}
