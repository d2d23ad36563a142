package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/story"
)

// The operations that only stories have. Those that end in "Check" print nothing and fail the
// case.
type (
	// statsOperation prints the counts. At, unless 0, is when they must be right, counted from
	// the mark.
	statsOperation struct{ at time.Duration }
	// markOperation sets the time that at= and before= count from.
	markOperation   struct{}
	forgetOperation struct{}
	// killOperation sends messages and dead-letters them, one after the other.
	killOperation    struct{ names []string }
	virtualOperation struct{}
	verboseOperation struct{ untimed bool }
	nothingCheck     struct{}
	emptyCheck       struct{}
	expiredCheck     struct{ deliveries []string }
	tooLateCheck     struct{ deliveries []string }
)

var storyVerbs = map[string]func(a *arguments) operation{
	"stats":   func(a *arguments) operation { a.none(); return statsOperation{a.duration("at", 0)} },
	"mark":    func(a *arguments) operation { a.none(); return markOperation{} },
	"forget":  func(a *arguments) operation { a.none(); return forgetOperation{} },
	"virtual": func(a *arguments) operation { a.none(); return virtualOperation{} },
	"verbose": func(a *arguments) operation {
		return verboseOperation{slices.Equal(a.words, []string{"untimed"})}
	},
	"cycle":    parseCycle,
	"kill":     func(a *arguments) operation { return killOperation{a.words} },
	"nothing":  func(a *arguments) operation { a.none(); return nothingCheck{} },
	"empty":    func(a *arguments) operation { a.none(); return emptyCheck{} },
	"expired":  func(a *arguments) operation { return expiredCheck{a.words} },
	"too-late": func(a *arguments) operation { return tooLateCheck{a.words} },
}

func (o statsOperation) String() string { return command("stats", nil, timeOption("at", o.at)) }
func (markOperation) String() string    { return "mark" }
func (forgetOperation) String() string  { return "forget" }
func (o killOperation) String() string  { return command("kill", o.names) }
func (virtualOperation) String() string { return "virtual" }
func (o verboseOperation) String() string {
	if o.untimed {
		return "verbose untimed"
	}
	return "verbose"
}
func (nothingCheck) String() string   { return "nothing" }
func (emptyCheck) String() string     { return "empty" }
func (o expiredCheck) String() string { return command("expired", o.deliveries) }
func (o tooLateCheck) String() string { return command("too-late", o.deliveries) }

func (o statsOperation) run(_ context.Context, p *executor) (r result) {
	e := p.story.env
	for due := p.story.mark.Add(o.at); ; e.nap(due) {
		stats, err := p.queue.Stats(e.ctx())
		now := time.Now()
		e.ok(err, "stats")
		text := describeStats(stats)
		if len(p.story.want) > 0 && text == p.story.want[0] && o.at != 0 {
			e.expectTime(now, due, text)
		} else if o.at != 0 && !now.After(due.Add(e.patience)) {
			continue
		}
		r.addf("%s", text)
		r.inexact = !p.queue.Traits().ExactStats
		return r
	}
}

// describeStats prints the counts that are not 0, and whether the queue is paused.
func describeStats(stats driver.Stats) string {
	var counts []string
	for _, count := range []struct {
		n     int
		state driver.State
	}{
		{stats.Ready, driver.StateReady}, {stats.Delayed, driver.StateDelayed},
		{stats.InFlight, "in flight"}, {stats.Dead, driver.StateDead},
	} {
		if count.n != 0 {
			counts = append(counts, fmt.Sprintf("%d %s", count.n, count.state))
		}
	}
	if stats.Throttled != 0 {
		counts = append(counts, fmt.Sprintf("%d throttled", stats.Throttled))
	}
	if stats.Paused {
		counts = append(counts, "paused")
	}
	if counts == nil {
		return "empty"
	}
	return strings.Join(counts, ", ")
}

func (markOperation) run(_ context.Context, p *executor) (r result) {
	p.story.mark = time.Now()
	return r
}

func (forgetOperation) run(ctx context.Context, p *executor) (r result) {
	p.story.env.ok(p.queue.ForgetDedup(ctx), "forget")
	return r
}

func (o killOperation) run(ctx context.Context, p *executor) (r result) {
	for _, name := range o.names {
		sent := p.sendStory(ctx, []outgoing{{name: name, Outgoing: driver.Outgoing{Body: []byte(name)}}})
		d := p.story.env.expectNext(p.queue, name)[0]
		p.take(&d)
		p.story.env.deadLetter(p.queue, d, driver.ReasonFatal)
		p.advance(time.Millisecond)
		r.text += sent.text
	}
	return r
}

func (virtualOperation) run(_ context.Context, p *executor) (r result) {
	if p.story.over = !p.story.env.backend.Virtual; p.story.over {
		p.story.env.t.Log("the rest is checked in virtual time only")
	}
	return r
}

func (o verboseOperation) run(ctx context.Context, p *executor) (r result) {
	p.verbose, p.untimed = true, o.untimed
	if !o.untimed {
		return virtualOperation{}.run(ctx, p)
	}
	return r
}

func (nothingCheck) run(_ context.Context, p *executor) (r result) {
	p.story.env.expectNothing(p.queue)
	return r
}

func (emptyCheck) run(_ context.Context, p *executor) (r result) {
	p.story.env.expectEmpty(p.queue)
	if p.queue.Traits().DeadLetters {
		p.story.env.expectDead(p.queue)
	}
	return r
}

func (o expiredCheck) run(_ context.Context, p *executor) (r result) {
	for _, name := range o.deliveries {
		p.story.env.expectExpired(p.queue, driver.Delivery{Receipt: p.receipt(name)}, "the receipt of "+name)
	}
	return r
}

func (o tooLateCheck) run(_ context.Context, p *executor) (r result) {
	for _, name := range o.deliveries {
		p.story.env.expectTooLate(p.queue, driver.Delivery{Receipt: p.receipt(name)}, "the receipt of "+name)
	}
	return r
}

// exception returns an error as the end of a line. In a story success is not mentioned, and
// withHint says that a full queue must say when to come back.
func (p *executor) exception(err error, withHint bool) string {
	switch {
	case err == nil && !p.verbose:
		return ""
	case !p.verbose && withHint:
		return ", " + hinted(err)
	}
	return ", " + verdict(err)
}

// hinted returns the code of an error, and says if it should have a retry hint and has none.
func hinted(err error) string {
	if errors.Is(err, driver.ErrFull) && driver.RetryAfter(err) <= 0 {
		return "full without a retry hint"
	}
	return verdict(err)
}

// sendStory sends a batch and prints the messages that were not accepted, or were duplicates.
func (p *executor) sendStory(ctx context.Context, messages []outgoing) (r result) {
	for chunk := range slices.Chunk(messages, p.queue.Traits().MaxBatch) {
		batch := make([]driver.Outgoing, len(chunk))
		for i := range chunk {
			if chunk[i].whole {
				chunk[i].complete(p.queue.Traits())
			}
			batch[i] = chunk[i].at(time.Now())
		}
		sent, err := p.queue.Send(ctx, batch)
		if isGone(err) {
			r.addf("%s", verdict(err))
			continue
		}
		r.addShape(err)
		if len(sent) != len(chunk) && len(chunk) > 0 && err == nil {
			r.addf("%d results of %d messages", len(sent), len(chunk))
			continue
		}
		for i, msg := range chunk {
			failed := driver.At(err, i)
			switch {
			case failed != nil && i < len(sent) && sent[i].ID != "":
				r.addf("%s: %s, with an id", msg.name, hinted(failed))
			case failed != nil:
				r.addf("%s: %s", story.Quote(msg.name), hinted(failed))
			case i >= len(sent):
				r.addf("%s: no result", msg.name)
			default:
				p.story.accept(&r, msg, sent[i])
			}
		}
	}
	return r
}

// complete gives the message everything that a queue can keep.
func (m *outgoing) complete(traits driver.Traits) {
	m.Body = append(m.Body, " \x00 body"...)
	m.Attributes = map[string]string{"k": "v", "ü": "✓"}
	m.ReplyTo, m.CorrelationID = cmp.Or(m.ReplyTo, "replies"), cmp.Or(m.CorrelationID, "corr")
	if traits.Groups {
		m.Group = "group-ß"
	}
	if traits.Seals {
		m.Seal = []byte("seal \x00\xff")
	}
}

// accept records a message that was sent.
func (s *storyState) accept(r *result, msg outgoing, sent driver.Sent) {
	known, used := s.sent[sent.ID]
	switch {
	case sent.Replaced && !sent.Duplicate:
		r.addf("%s: replaced, and not a duplicate", story.Quote(msg.name))
	case sent.Duplicate && !used:
		r.addf("%s: duplicate of an unknown message", story.Quote(msg.name))
	case sent.Replaced:
		r.addf("%s: replaced %s", story.Quote(msg.name), story.Quote(known.name))
		msg.name, msg.Group, msg.Priority = known.name, known.Group, known.Priority
		s.sent[sent.ID] = msg
		delete(s.first, sent.ID) // the next delivery is the first of this content
	case sent.Duplicate:
		r.addf("%s: duplicate of %s", story.Quote(msg.name), story.Quote(known.name))
	case used:
		r.addf("%s: has the id of %s", story.Quote(msg.name), story.Quote(known.name))
	default:
		s.ids[msg.name], s.sent[sent.ID] = sent.ID, msg
	}
}

// receiveStory prints the messages that were received in one line.
func (p *executor) receiveStory(ctx context.Context, o receiveOperation) (r result) {
	e := p.story.env
	var got []driver.Delivery
	var err error
	start := time.Now()
	switch due := p.story.mark.Add(o.at); {
	case o.at != 0:
		got = e.take(p.queue, o.request.Max, o.request.Visibility, due)
		if len(got) == o.request.Max {
			e.expectTime(time.Now(), due, "the delivery")
		}
	case o.notBefore != 0: // it may be late: after a crash that cost the clock, messages are late rather than early
		due = p.story.mark.Add(o.notBefore)
		got = e.take(p.queue, o.request.Max, o.request.Visibility, due)
		if early := time.Until(due); early > e.slack {
			e.failf("the delivery of %q: %v too early", bodies(got), early)
		}
	case o.collect:
		got = e.take(p.queue, o.request.Max, o.request.Visibility, start)
		if len(got) == o.request.Max {
			e.expectPrompt(start, "receive of ready messages")
		}
	default:
		got, err = p.queue.Receive(ctx, o.request)
	}
	if err != nil {
		r.addf("%s", hinted(err))
		return r
	}
	labels := make([]string, len(got))
	for i := range got {
		if labels[i] = p.take(&got[i]); o.brief {
			labels[i] = story.Quote(p.story.sent[got[i].ID].name)
		}
	}
	r.addf("%s", cmp.Or(strings.Join(p.story.sorted(p.queue, labels), " "), "nothing"))
	return r
}

// take records a delivery and returns its label.
func (p *executor) take(d *driver.Delivery) string {
	label := p.story.label(&driver.DeadLetter{Message: d.Message}, "")
	if p.given[d.Receipt] || d.Receipt.IsZero() {
		label += "!receipt"
	}
	p.given[d.Receipt] = true
	p.receipts = append(p.receipts, d.Receipt)
	if _, known := p.story.first[d.ID]; !known {
		p.story.first[d.ID] = d.Message
	}
	name := p.story.sent[d.ID].name
	p.story.taken[name] = append(p.story.taken[name], *d)
	return label
}

// forgetFirst forgets the first deliveries among those that were given back: another delivery
// is the first one then.
func (s *storyState) forgetFirst(nacks []driver.Nack) {
	for _, taken := range s.taken {
		for _, d := range taken {
			isGiven := slices.ContainsFunc(nacks, func(nack driver.Nack) bool { return nack.Receipt == d.Receipt })
			if isGiven && d.Deliveries == 1 {
				delete(s.first, d.ID)
			}
		}
	}
}

// deadStory prints the dead letters in one line. Those that died at the same instant may be
// listed in any order.
func (p *executor) deadStory(ctx context.Context, diedAtMark bool) (r result) {
	var letters []driver.DeadLetter
	for letter, err := range p.queue.DeadLetters(ctx) {
		if err != nil {
			r.addf("%s", verdict(err))
			return r
		}
		letters = append(letters, letter)
		if diedAtMark {
			p.story.env.expectWallTime(letter.DeadAt, p.story.mark, "the death")
		}
	}
	byDeath := func(a, b driver.DeadLetter) int { return a.DeadAt.Compare(b.DeadAt) }
	if !slices.IsSortedFunc(letters, byDeath) {
		r.addf("not in the order of the deaths")
	}
	label := func(letter driver.DeadLetter) string { return p.story.label(&letter, queueName) }
	slices.SortStableFunc(letters, func(a, b driver.DeadLetter) int {
		return cmp.Or(byDeath(a, b), p.story.position(label(a))-p.story.position(label(b)))
	})
	labels := make([]string, len(letters))
	for i, letter := range letters {
		labels[i] = label(letter)
	}
	r.addf("%s", cmp.Or(strings.Join(labels, " "), "none"))
	return r
}

// peekStory prints the messages that were found, and their states, in one line.
func (p *executor) peekStory(found []sighting) (r result) {
	labels := make([]string, len(found))
	for i, s := range found {
		labels[i] = s.label
	}
	r.addf("%s", cmp.Or(strings.Join(p.story.sorted(p.queue, labels), " "), "nothing"))
	return r
}

// deadAttributes begins the attributes that a message gets when it dies and moves to another
// queue.
const deadAttributes = "mailbox.dead."

// label returns the name of a message and what is unusual about it: (REASON) if it is dead, #N if
// it is not its first delivery, :ERROR if it has a last error, {…} if it died in another queue,
// and !FIELD for each field that is not what was sent, or not what it was before.
func (s *storyState) label(letter *driver.DeadLetter, source string) string {
	sent, known := s.sent[letter.ID]
	text := story.Quote(sent.name)
	if !known {
		text = "?" + story.Quote(brief(letter.Body))
	}
	if letter.Reason != "" {
		text += "(" + string(letter.Reason)
		if letter.ErrorType != "" {
			text += ",type=" + letter.ErrorType
		}
		if letter.Redrives != 0 {
			text += fmt.Sprintf(",redrives=%d", letter.Redrives)
		}
		if source != "" && letter.Source != source {
			text += ",source=" + letter.Source
		}
		text += ")"
	}
	if letter.Deliveries != 1 {
		text += fmt.Sprintf("#%d", letter.Deliveries)
	}
	if letter.LastError != "" {
		text += ":" + story.Quote(letter.LastError)
	}
	attributes := maps.Clone(letter.Attributes)
	died := make(map[string]string)
	for key, value := range letter.Attributes {
		if name, ok := strings.CutPrefix(key, deadAttributes); ok && sent.Attributes[key] == "" {
			delete(attributes, key)
			if value != "" { // empty and absent are the same
				died[name] = story.Quote(value)
			}
		}
	}
	if len(died) > 0 {
		text += describeAttributes(died)
	}
	if known && !maps.Equal(attributes, sent.Attributes) {
		text += "!attributes=" + describeAttributes(attributes)
	}
	return text + s.changes(&letter.Message, sent, known)
}

// changes returns !FIELD for each field that differs from what was sent, or from the first
// delivery.
func (s *storyState) changes(msg *driver.Message, sent outgoing, known bool) (text string) {
	first, delivered := s.first[msg.ID]
	if !delivered || s.forwards {
		first = *msg
	}
	for _, field := range []struct {
		name string
		ok   bool
	}{
		{"body", string(msg.Body) == string(sent.Body) || !known},
		{"group", msg.Group == sent.Group || !known},
		{"reply-to", msg.ReplyTo == sent.ReplyTo || !known},
		{"correlation", msg.CorrelationID == sent.CorrelationID || !known},
		{"seal", string(msg.Seal) == string(sent.Seal) || !known},
		{"priority", msg.Priority == sent.Priority || !known},
		{"enqueued", msg.EnqueuedAt.Equal(first.EnqueuedAt) && isUTC(msg.EnqueuedAt)},
		{"first-received", msg.FirstReceivedAt.Equal(first.FirstReceivedAt) && isUTC(msg.FirstReceivedAt)},
	} {
		if !field.ok {
			text += "!" + field.name
		}
	}
	return text
}

func isUTC(t time.Time) bool {
	_, offset := t.Zone()
	return offset == 0
}

// cutNumber splits "a#2".
func cutNumber(name string) (message string, number int, ok bool) {
	i := strings.LastIndexByte(name, '#')
	if i < 0 {
		return "", 0, false
	}
	number, err := strconv.Atoi(name[i+1:])
	return name[:i], number, err == nil
}
