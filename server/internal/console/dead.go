package console

import (
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
	broker.Survey
	causes  []broker.Cause // largest first
	letters []deadLetter   // the oldest of the cause that the page is about
}

// survey groups the dead letters of a queue that a filter selects by cause, within a budget.
func (v *view) survey(queue string, filter *broker.Search) (survey, error) {
	s := survey{Survey: broker.Survey{Search: *filter}}
	s.Least, s.Most, s.Until = leastDead, mostDead, v.lookEnd(false)
	if filter.Cause != "" {
		s.See = func(m *broker.Peeked) {
			if len(s.letters) < messagesPerPage {
				s.letters = append(s.letters, deadLetter{m.ID, m.DeadAt, m.Deliveries, preview(m.Body), shorten(m.LastError, 120)})
			}
		}
	}
	var err error
	s.causes, err = v.caller.Causes(v.ctx(), queue, &s.Survey)
	return s, err
}

// looked is how many dead letters were looked at.
func (s *survey) looked() int { return s.Looked[driver.StateDead] }

// causeName describes a cause in a few words.
func causeName(c *broker.Cause) string {
	if c.Words == "" {
		return reasonWords(c.Reason)
	}
	return c.Words
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
	filter, problem := v.deadFilter()
	found := survey{}
	if problem == "" {
		var err error
		if found, err = v.survey(queue, &filter); err != nil {
			return err
		}
	}
	p.title = "Dead letters of " + queue
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("dead", "tenant", v.tenant)), h.Text("Dead letters")), h.Text(" / "), h.A(h.Href(link("queue", "name", queue, "tenant", v.tenant)), h.Text(queue))))
	if filter.Cause != "" && problem == "" {
		return v.causePage(p, queue, &found)
	}
	change := (found.Selected > 0 || found.Cut) && v.mayChange(capability.OpDLQ, queue)
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
	if found.looked() == 0 {
		return empty("All well: the queue has no dead letters.")
	}
	if found.Selected == 0 {
		return h.Group{empty("No dead letter matches."), found.extent()}
	}
	now := time.Now()
	filtered := v.filtered()
	var rows []h.Node
	for i := range found.causes[:min(len(found.causes), maxCausesShown)] {
		c := &found.causes[i]
		rows = append(rows, h.Tr(
			h.Td(h.Class("long"), h.A(h.Href(link("dead", append([]string{"queue", queue, "tenant", v.tenant, "cause", c.ID}, filtered...)...)), h.Text(causeName(c))),
				h.If(c.LastError != c.Words && c.LastError != "", h.Div(h.Class("quiet"), h.Text(shorten(c.LastError, 160))))),
			h.Td(h.Span(h.Class("tag"), h.Text(string(c.Reason))), h.If(c.ErrorType != "", h.Span(h.Class("tag"), h.Text(shorten(c.ErrorType, 60))))),
			numberCell(c.Messages, "dead"), h.Td(ago(c.First, now)), h.Td(ago(c.Last, now)),
		))
	}
	return h.Group{table("Causes", []string{"Cause", "Reason", "#Messages", "First", "Last"}, rows), found.extent()}
}

// extent says how far a survey looked.
func (s *survey) extent() h.Node {
	causes := count(s.Found, "cause")
	text := count(s.Selected, "dead letter") + " in " + causes + "."
	switch {
	case s.Cut && s.Selected < s.looked():
		text = count(s.Selected, "dead letter") + " in " + causes + ", of the oldest " + number(s.looked()) + "; there are more."
	case s.Cut:
		text = "The oldest " + count(s.looked(), "dead letter") + ", in " + causes + "; there are more."
	case s.Selected < s.looked():
		text = count(s.Selected, "dead letter") + " of " + number(s.looked()) + ", in " + causes + "."
	}
	if len(s.causes) > maxCausesShown {
		text += " The largest " + number(maxCausesShown) + " causes are shown."
	}
	return h.P(h.Class("quiet"), h.Text(text))
}

// causePage shows the dead letters of one cause.
func (v *view) causePage(p *page, queue string, found *survey) error {
	if found.Selected == 0 {
		p.heading(h.Text("Dead letters of this cause"))
		p.add(v.deadFilterForm(queue))
		p.live("letters", empty("None left. They were redriven, discarded or removed by retention."))
		return nil
	}
	c := &found.causes[0]
	change := v.mayChange(capability.OpDLQ, queue)
	at := append([]string{"queue", queue, "cause", c.ID}, v.filtered()...)
	p.heading(h.Text(causeName(c)),
		v.button(change, "", "Redrive "+number(c.Messages)+"…", "redrive", at...),
		v.button(change, "danger", "Discard "+number(c.Messages)+"…", "discard", at...))
	p.add(v.deadFilterForm(queue))
	now := time.Now()
	var f facts
	f.text("reason", reasonWords(c.Reason))
	f.text("error type", c.ErrorType)
	f.text("first error", c.LastError)
	f.add("first", moment(c.First))
	f.add("last", moment(c.Last))
	var rows []h.Node
	for _, l := range found.letters {
		rows = append(rows, h.Tr(h.Td(v.messageLink(queue, l.id)), h.Td(ago(l.deadAt, now)), numberCell(l.deliveries, ""),
			h.Td(h.Class("preview"), h.Code(h.Text(l.preview))), h.Td(h.Class("preview"), h.Text(l.lastError))))
	}
	note := count(c.Messages, "message") + "."
	if c.Messages > len(rows) {
		note = "The oldest " + number(len(rows)) + " of " + count(c.Messages, "message") + "."
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
