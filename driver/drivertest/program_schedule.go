package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/story"
)

type (
	// fireOperation changes a schedule. Its revision is latest, the last one that was seen;
	// stale, the one before; or none.
	fireOperation struct {
		name, revision string
		definition     string // "" keeps it
		remove         bool
		through        time.Duration // from now; 0 keeps it
		messages       []outgoing    // ahead is how far Due is ahead
	}
	schedulesOperation struct{}
)

const (
	latestRevision = "latest"
	staleRevision  = "stale"
	noRevision     = "none"
)

func (schedulesOperation) String() string { return "schedules" }

func (o fireOperation) String() string {
	c := story.Command{Verb: "fire", Parts: []story.Part{{Words: []string{o.name}, Options: given([]story.Option{
		textOption("revision", o.revision), textOption("definition", o.definition),
		boolOption("remove", o.remove), timeOption("through", o.through),
	})}}}
	for _, msg := range o.messages {
		c.Parts = append(c.Parts, story.Part{Words: []string{string(msg.Body)}, Options: given([]story.Option{
			timeOption("due", msg.ahead), textOption("key", msg.DedupKey),
		})})
	}
	return c.String()
}

func parseFire(c story.Command, names durations) (operation, error) {
	var op fireOperation
	for i, part := range c.Parts {
		a := arguments{words: part.Words, options: slices.Clone(part.Options), names: names}
		if len(a.words) != 1 {
			return nil, errors.New("fire: want one name, and one in each message")
		}
		if i == 0 {
			op.name, op.revision, op.definition = a.words[0], a.text("revision"), a.text("definition")
			op.remove, op.through = a.yes("remove"), a.duration("through", 0)
		} else {
			op.messages = append(op.messages, outgoing{
				name: a.words[0], ahead: a.duration("due", 0),
				Outgoing: driver.Outgoing{Body: []byte(a.words[0]), DedupKey: a.text("key")},
			})
		}
		if err := a.done(); err != nil {
			return nil, err
		}
	}
	return op, nil
}

// firing returns the firing of an operation now.
func (p *executor) firing(o *fireOperation) driver.Firing {
	at := func(ahead time.Duration) time.Time {
		if ahead == 0 {
			return time.Time{}
		}
		return p.start.Add(p.clock() + ahead).Truncate(time.Millisecond)
	}
	f := driver.Firing{Name: o.name, Remove: o.remove, Through: at(o.through)}
	if o.definition != "" {
		f.Definition = []byte(o.definition)
	}
	seen := p.revisions[o.name]
	switch {
	case o.revision == latestRevision && len(seen) > 0:
		f.Revision = seen[len(seen)-1]
	case o.revision == staleRevision && len(seen) > 1:
		f.Revision = seen[len(seen)-2]
	}
	for _, msg := range o.messages {
		f.Messages = append(f.Messages, driver.DueMessage{Due: at(msg.ahead), Outgoing: msg.Outgoing})
	}
	return f
}

func (o fireOperation) run(ctx context.Context, p *executor) (r result) {
	now, done, err := p.queue.Fire(ctx, p.firing(&o))
	if err != nil {
		r.addf("%s", verdict(err))
		if errors.Is(err, driver.ErrFull) {
			r.hints = append(r.hints, driver.RetryAfter(err))
		}
		return r
	}
	r.addf("%s: %s", map[bool]string{true: "done", false: "not done"}[done], p.describeSchedule(&now))
	return r
}

func (schedulesOperation) run(ctx context.Context, p *executor) (r result) {
	for s, err := range p.queue.Schedules(ctx, "") {
		if err != nil {
			r.addf("%s", verdict(err))
			break
		}
		r.addf("%s", p.describeSchedule(&s))
	}
	return r
}

// describeSchedule prints all fields of a schedule. A revision is random, so it prints how many
// were seen later.
func (p *executor) describeSchedule(s *driver.Schedule) string {
	seen := p.revisions[s.Name]
	if s.Revision != 0 && !slices.Contains(seen, s.Revision) {
		seen = append(seen, s.Revision)
		p.revisions[s.Name] = seen
	}
	revision := "none"
	if s.Revision != 0 {
		revision = fmt.Sprintf("%d of %d", slices.Index(seen, s.Revision)+1, len(seen))
	}
	text := fmt.Sprintf("%s %q, revision %s, through %s, at %s", s.Name, s.Definition, revision, p.time(s.Through), p.time(s.Now))
	for _, run := range s.Runs {
		text += fmt.Sprintf("; %v due %s sent %s", p.meet(run.MessageID), p.time(run.Due), p.time(run.At))
	}
	return text
}

// fire draws a change of a schedule, or a listing.
func (g *planner) fire(t *rapid.T) operation {
	if rarely(t, 2) {
		return schedulesOperation{}
	}
	op := fireOperation{name: pick(t, "s1", "s2"), revision: pick(t, latestRevision, latestRevision, latestRevision, staleRevision, noRevision)}
	exists := slices.ContainsFunc(g.model.Schedules, func(s driver.Schedule) bool { return s.Name == op.name })
	switch {
	case !exists && coins(t, 4):
		op.revision, op.definition = noRevision, pick(t, "x", "y")
	case rarely(t, 3):
		op.remove = true
		return op
	case rarely(t, 1):
		op.definition = pick(t, "x", "y")
	}
	op.through = pick(t, 0, -time.Hour, time.Hour)
	if !g.untimed {
		op.through = pick(t, 0, -time.Second, -time.Millisecond, time.Nanosecond, time.Millisecond, time.Minute)
	}
	if g.oneGroup && g.config.StrictGroups { // they would be another group
		return op
	}
	for range upTo(t, 4) - 1 {
		body := strings.Repeat(pick(t, "a", "b"), upTo(t, 12))
		msg := outgoing{name: body, Outgoing: driver.Outgoing{Body: []byte(body)}, ahead: pick(t, 0, -time.Hour)}
		if rarely(t, 6) { // it is refused
			msg.DedupKey = "k1"
		}
		op.messages = append(op.messages, msg)
	}
	return op
}
