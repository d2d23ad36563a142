package console

import (
	"cmp"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

const (
	// workersPerPage is how many workers a page lists, and maxWorkersOfQueue how many the page of a
	// queue does, with the messages that they hold.
	workersPerPage    = 50
	maxWorkersOfQueue = 20
)

func workerList(v *view, p *page) error {
	all, err := v.caller.Workers(v.ctx(), "")
	if err != nil {
		return err
	}
	filter := v.get("q")
	found := workersWith(all, filter)
	p.heading(h.Text("Workers"))
	p.add(h.Form(h.Class("filter"), h.Method("get"), h.Action("workers"), h.Role("search"), hiddenField("tenant", v.tenant),
		field("Name or queue contains", "q", filter, h.Type("search"), h.Data("search", "")),
		h.Button(h.Type("submit"), h.Text("Filter")),
		h.If(filter != "", h.A(h.Href(link("workers", "tenant", v.tenant)), h.Text("Show all"))),
	))
	current := pageNumber(v.get("page"), len(found), workersPerPage)
	now := time.Now()
	var rows []h.Node
	for _, w := range found[min(len(found), (current-1)*workersPerPage):min(len(found), current*workersPerPage)] {
		rows = append(rows, h.Tr(
			h.Td(workerName(&w)), h.Td(h.A(h.Href(link("queue", "name", w.Queue, "tenant", v.tenant)), h.Text(w.Queue))), h.Td(workerState(&w)), h.Td(ago(w.Seen, now)),
			numberCell(w.InFlight, "in_flight"), numberCell(w.Acked, ""), numberCell(w.Failed, "dead"), numberCell(w.Expired, "dead"), h.Td(h.Code(h.Text(w.Token.String()))),
		))
	}
	switch {
	case len(rows) > 0:
		p.live("workers", table("Workers", []string{"Worker", "Queue", "State", "Last received", "#Holds", "#Acked", "#Failed", "#Expired", "Token"}, rows),
			pager("workers", "worker", current, len(found), workersPerPage, "q", filter, "tenant", v.tenant), h.P(h.Class("quiet"), h.Text(workersNote)))
	case filter != "":
		p.live("workers", empty("None of "+count(len(all), "worker")+" has this in its name or the name of its queue."))
	default:
		p.live("workers", empty("No worker was seen in the last 5 minutes, on the queues that your token allows stats on. One appears when a program receives: mailbox recv QUEUE"))
	}
	return nil
}

const workersNote = "Those that received from this daemon in the last 5 minutes, wait, or hold messages. Receivers choose their names. Each daemon knows its own."

// workersWith returns the workers with the text in their name or queue, in any case.
func workersWith(all []broker.Worker, text string) []broker.Worker {
	if text == "" {
		return all
	}
	text = strings.ToLower(text)
	var found []broker.Worker
	for _, w := range all {
		if strings.Contains(strings.ToLower(w.Name), text) || strings.Contains(strings.ToLower(w.Queue), text) {
			found = append(found, w)
		}
	}
	return found
}

// workerName shows what a worker calls itself, and where it is.
func workerName(w *broker.Worker) h.Node {
	name := w.Name
	if name == "" {
		name = "without a name"
	}
	from := strings.TrimSpace(w.Protocol + " " + w.AddressText())
	return h.Group{h.Span(h.Class("long"), h.Text(name)), h.Text(" "), h.Span(h.Class("tag"), h.Text(from))}
}

func workerState(w *broker.Worker) h.Node {
	switch {
	case w.InFlight > 0:
		return h.Span(h.Class("state in_flight"), h.Text("works"))
	case w.Waiting > 0:
		return h.Span(h.Class("state ready"), h.Text("waits"))
	}
	return h.Span(h.Class("state"), h.Text("idle"))
}

// workersOf shows the workers of a queue, and the messages that they hold.
func (v *view) workersOf(queue string) h.Node {
	workers, err := v.caller.Workers(v.ctx(), queue)
	if err != nil {
		return failed(wireerr.Of(err).Message())
	}
	if len(workers) == 0 {
		return empty("No worker was seen in the last 5 minutes.")
	}
	now := time.Now()
	var rows []h.Node
	for i := range workers[:min(len(workers), maxWorkersOfQueue)] {
		w := &workers[i]
		rows = append(rows, h.Tr(h.Td(workerName(w), v.held(queue, w, now)), h.Td(workerState(w)), h.Td(ago(w.Seen, now)), numberCell(w.Acked, ""), numberCell(w.Failed+w.Expired, "dead")))
	}
	return h.Group{
		table("Workers of this queue", []string{"Worker", "State", "Last received", "#Acked", "#Failed or expired"}, rows),
		h.Iff(len(workers) > maxWorkersOfQueue, func() h.Node {
			return h.P(h.A(h.Href(link("workers", "q", queue, "tenant", v.tenant)), h.Text("All "+count(len(workers), "worker")+" →")))
		}),
	}
}

// held shows the messages that a worker holds, those first that it has held for longest.
func (v *view) held(queue string, w *broker.Worker, now time.Time) h.Node {
	if w.InFlight == 0 {
		return nil
	}
	if len(w.Held) == 0 { // the token does not allow peek
		return h.Div(h.Class("held"), h.Text("holds "+count(w.InFlight, "message")))
	}
	const shown = 3
	var nodes h.Group
	for _, held := range w.Held[:min(len(w.Held), shown)] {
		nodes = append(nodes, h.Div(h.Text("holds "), v.messageLink(queue, held.ID), h.Text(" for "+span(now.Sub(held.TakenAt))+", until "), ago(held.Until, now), progress(held.Progress, now)))
	}
	if more := w.InFlight - len(nodes); more > 0 {
		nodes = append(nodes, h.Div(h.Class("quiet"), h.Text("and "+number(more)+" more")))
	}
	return h.Div(h.Class("held"), nodes)
}

// progress shows what a worker has reported about a message, if there is a report.
func progress(p *broker.Progress, now time.Time) h.Node {
	return h.Iff(p != nil, func() h.Node {
		return h.Div(h.Class("quiet"), h.Text(cmp.Or(p.String(), "at work")+", reported "), ago(p.At, now))
	})
}
