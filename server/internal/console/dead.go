package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// The budget of a look at the dead letters of a queue.
const leastDead, mostDead = 500, 5000

// maxCausesShown bounds the causes on a page: every dead letter may have its own.
const maxCausesShown = 200

// A cause is what dead letters have in common: the reason, the type of the error, and its
// text without the parts that differ from message to message.
type cause struct {
	id                    string
	reason                driver.Reason
	errorType, normalised string
	example               string // the text of the first error
	letters               []deadLetter
	first, last           time.Time
}

// A deadLetter is what pages show of a dead letter.
type deadLetter struct {
	id         string
	deadAt     time.Time
	deliveries int
	preview    string
	lastError  string
}

// A survey is what a look at the dead letters of a queue found.
type survey struct {
	causes []*cause // largest first
	// looked is how many dead letters were looked at, and selected how many of them the conditions select.
	looked, selected int
	// cut: the budget was spent before all were looked at.
	cut bool
}

// survey groups the dead letters of a queue that conditions select by cause, within a budget.
func (v *view) survey(queue string, conditions *broker.Selection) (survey, error) {
	var s survey
	now := time.Now()
	known := make(map[string]*cause)
	limit := v.budget(leastDead, mostDead)
	for m, err := range v.caller.DeadLetters(v.ctx(), queue) {
		if err != nil {
			return s, err
		}
		if s.looked > 0 && limit.spent(s.looked) {
			s.cut = true
			break
		}
		s.looked++
		if conditions.Wants(&m, now) {
			s.selected++
			s.add(known, &m)
		}
	}
	slices.SortStableFunc(s.causes, func(a, b *cause) int { return cmp.Compare(len(b.letters), len(a.letters)) })
	return s, nil
}

func (s *survey) add(known map[string]*cause, m *broker.Peeked) {
	id, normalised := m.Cause()
	c := known[id]
	if c == nil {
		c = &cause{id: id, reason: m.Reason, errorType: m.ErrorType, normalised: normalised, example: m.LastError, first: m.DeadAt, last: m.DeadAt}
		known[id] = c
		s.causes = append(s.causes, c)
	}
	if m.DeadAt.Before(c.first) {
		c.first = m.DeadAt
	}
	if m.DeadAt.After(c.last) {
		c.last = m.DeadAt
	}
	c.letters = append(c.letters, deadLetter{m.ID, m.DeadAt, m.Deliveries, preview(m.Body), shorten(m.LastError, 120)})
}

func (s *survey) cause(id string) *cause {
	i := slices.IndexFunc(s.causes, func(c *cause) bool { return c.id == id })
	if i < 0 {
		return nil
	}
	return s.causes[i]
}

// name describes a cause in a few words.
func (c *cause) name() string {
	if c.normalised == "" {
		return reasonWords(c.reason)
	}
	return c.normalised
}

// reasonWords describes a reason.
func reasonWords(r driver.Reason) string {
	switch r {
	case driver.ReasonMaxDeliveries:
		return "delivered too often without an ack"
	case driver.ReasonExpired:
		return "expired"
	case driver.ReasonFatal:
		return "dead-lettered by a receiver"
	case driver.ReasonParse:
		return "could not be decoded"
	case driver.ReasonIntegrity:
		return "changed outside the daemon"
	case driver.ReasonOperator:
		return "dead-lettered by an operator"
	}
	return string(r)
}

func deadPage(v *view, p *page) error {
	queue := v.get("queue")
	if queue == "" {
		return deadQueues(v, p)
	}
	if !v.may(capability.OpDLQ, queue) {
		p.heading(h.Text("Dead letters"))
		p.add(lacks(capability.OpDLQ, "reading dead letters"))
		return nil
	}
	conditions, problem := v.conditions()
	id := conditions.Cause
	found := survey{}
	if problem == "" {
		var err error
		if found, err = v.survey(queue, &conditions); err != nil {
			return err
		}
	}
	p.title = "Dead letters of " + queue
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("dead", "tenant", v.tenant)), h.Text("Dead letters")), h.Text(" / "), h.A(h.Href(link("queue", "name", queue, "tenant", v.tenant)), h.Text(queue))))
	if id != "" && problem == "" {
		return v.causePage(p, queue, &found, id)
	}
	change := (found.selected > 0 || found.cut) && v.mayChange(capability.OpDLQ, queue)
	filtered := v.filtered()
	which := "all…"
	if len(filtered) > 0 {
		which = "matching…"
	}
	at := append([]string{"queue", queue}, filtered...)
	p.heading(h.Text(p.title), v.button(change, "", "Redrive "+which, "redrive", at...), v.button(change, "danger", "Discard "+which, "discard", at...),
		h.A(h.Class("button"), h.Href(link("jobs", "queue", queue, "tenant", v.tenant)), h.Text("Jobs")))
	p.add(v.deadFilterForm(queue))
	if problem != "" {
		p.add(failed(problem))
		return nil
	}
	p.live("causes", v.causes(queue, &found))
	return nil
}

func (v *view) causes(queue string, found *survey) h.Node {
	if found.looked == 0 {
		return empty("All well: the queue has no dead letters.")
	}
	if found.selected == 0 {
		return h.Group{empty("No dead letter matches."), found.extent()}
	}
	now := time.Now()
	filtered := v.filtered()
	var rows []h.Node
	for _, c := range found.causes[:min(len(found.causes), maxCausesShown)] {
		rows = append(rows, h.Tr(
			h.Td(h.Class("long"), h.A(h.Href(link("dead", append([]string{"queue", queue, "tenant", v.tenant, "cause", c.id}, filtered...)...)), h.Text(c.name())),
				h.If(c.example != c.normalised && c.example != "", h.Div(h.Class("quiet"), h.Text(shorten(c.example, 160))))),
			h.Td(h.Span(h.Class("tag"), h.Text(string(c.reason))), h.If(c.errorType != "", h.Span(h.Class("tag"), h.Text(shorten(c.errorType, 60))))),
			numberCell(len(c.letters), "dead"), h.Td(ago(c.first, now)), h.Td(ago(c.last, now)),
		))
	}
	return h.Group{table("Causes", []string{"Cause", "Reason", "#Messages", "First", "Last"}, rows), found.extent()}
}

// extent says how far a survey looked.
func (s *survey) extent() h.Node {
	text := count(s.selected, "dead letter") + " in " + count(len(s.causes), "cause") + "."
	switch {
	case s.cut && s.selected < s.looked:
		text = count(s.selected, "dead letter") + " in " + count(len(s.causes), "cause") + ", of the oldest " + number(s.looked) + "; there are more."
	case s.cut:
		text = "The oldest " + count(s.looked, "dead letter") + ", in " + count(len(s.causes), "cause") + "; there are more."
	case s.selected < s.looked:
		text = count(s.selected, "dead letter") + " of " + number(s.looked) + ", in " + count(len(s.causes), "cause") + "."
	}
	if len(s.causes) > maxCausesShown {
		text += " The largest " + number(maxCausesShown) + " causes are shown."
	}
	return h.P(h.Class("quiet"), h.Text(text))
}

// causePage shows the dead letters of one cause.
func (v *view) causePage(p *page, queue string, found *survey, id string) error {
	c := found.cause(id)
	if c == nil {
		p.heading(h.Text("Dead letters of this cause"))
		p.add(v.deadFilterForm(queue))
		p.live("letters", empty("None left. They were redriven, discarded or removed by retention."))
		return nil
	}
	change := v.mayChange(capability.OpDLQ, queue)
	at := append([]string{"queue", queue, "cause", id}, v.filtered()...)
	p.heading(h.Text(c.name()),
		v.button(change, "", "Redrive "+number(len(c.letters))+"…", "redrive", at...),
		v.button(change, "danger", "Discard "+number(len(c.letters))+"…", "discard", at...))
	p.add(v.deadFilterForm(queue))
	now := time.Now()
	var f facts
	f.text("reason", reasonWords(c.reason))
	f.text("error type", c.errorType)
	f.text("first error", c.example)
	f.add("first", moment(c.first))
	f.add("last", moment(c.last))
	var rows []h.Node
	for _, l := range c.letters[:min(len(c.letters), messagesPerPage)] {
		rows = append(rows, h.Tr(h.Td(v.messageLink(queue, l.id)), h.Td(ago(l.deadAt, now)), numberCell(l.deliveries, ""),
			h.Td(h.Class("preview"), h.Code(h.Text(l.preview))), h.Td(h.Class("preview"), h.Text(l.lastError))))
	}
	note := count(len(c.letters), "message") + "."
	if len(c.letters) > len(rows) {
		note = "The oldest " + number(len(rows)) + " of " + count(len(c.letters), "message") + "."
	}
	p.live("letters", f.list(), table("Dead letters", []string{"Message", "Dead since", "#Deliveries", "Body", "Error"}, rows), h.P(h.Class("quiet"), h.Text(note)))
	return nil
}

// deadQueues lists the queues that have dead letters.
func deadQueues(v *view, p *page) error {
	names, _, err := v.queueNames()
	if err != nil {
		return err
	}
	p.heading(h.Text("Dead letters"), h.A(h.Class("button"), h.Href(link("jobs", "tenant", v.tenant)), h.Text("Jobs")))
	limit := v.budget(leastCounted, mostCounted)
	var rows []h.Node
	looked := 0
	for _, name := range names {
		if limit.spent(looked) {
			break
		}
		looked++
		if c := v.count(name); c.Dead > 0 {
			rows = append(rows, h.Tr(
				h.Td(h.A(h.Href(link("dead", "queue", c.Queue, "tenant", v.foreignTenant(c.Tenant))), h.Text(c.Queue)), v.tenantTag(c.Tenant)),
				numberCell(c.Dead, "dead")))
		}
	}
	note := count(looked, "queue") + " looked at."
	if looked < len(names) {
		note = "The first " + number(looked) + " of " + count(len(names), "queue") + " were looked at; find others under Queues."
	}
	if len(rows) == 0 {
		p.live("dead", empty("All well: none of these queues has dead letters."), h.P(h.Class("quiet"), h.Text(note)))
		return nil
	}
	p.live("dead", table("Queues with dead letters", []string{"Queue", "#Dead"}, rows), h.P(h.Class("quiet"), h.Text(note)))
	return nil
}
