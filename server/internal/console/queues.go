package console

import (
	"strconv"
	"strings"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// queuesPerPage is how many queues a page lists.
const queuesPerPage = 50

func queueList(v *view, p *page) error {
	names, listed, err := v.queueNames()
	if err != nil {
		return err
	}
	all := len(names)
	filter := v.get("q")
	if filter != "" {
		names = matching(names, filter)
	}
	current := pageNumber(v.get("page"), len(names), queuesPerPage)
	shown := names[min(len(names), (current-1)*queuesPerPage):min(len(names), current*queuesPerPage)]
	p.heading(h.Text("Queues"))
	p.add(h.Form(h.Class("filter"), h.Method("get"), h.Action("queues"), h.Role("search"), hiddenField("tenant", v.tenant),
		field("Name contains", "q", filter, h.Type("search"), h.Data("search", "")),
		h.Button(h.Type("submit"), h.Text("Filter")),
		h.If(filter != "", h.A(h.Href(link("queues", "tenant", v.tenant)), h.Text("Show all"))),
	))
	if !listed {
		p.add(h.Form(h.Class("filter"), h.Method("get"), h.Action("queue"),
			h.P(h.Class("quiet"), h.Text("These are the queues that your token names. A list of all needs a token for admin on any queue; you can open one by its name.")),
			field("Open a queue", "name", "", h.Required()), h.Button(h.Type("submit"), h.Text("Open"))))
	}
	rows := make([]h.Node, 0, len(shown))
	for _, name := range shown {
		c := v.count(name)
		rows = append(rows, v.queueRow(&c))
	}
	switch {
	case len(rows) > 0:
		p.live("queues", table("Queues", []string{"Queue", "#Ready", "#Delayed", "#In flight", "#Dead"}, rows), pager("queues", current, len(names), queuesPerPage, "q", filter, "tenant", v.tenant))
	case filter != "":
		p.live("queues", empty("None of "+count(all, "queue")+" has this in its name."))
	default:
		p.live("queues", empty("No queue yet. One appears when something is sent to it: mailbox send QUEUE BODY"))
	}
	return nil
}

// matching returns the queues with the text in their name or tenant, in any case.
func matching(names []broker.TenantQueue, text string) []broker.TenantQueue {
	text = strings.ToLower(text)
	var found []broker.TenantQueue
	for _, name := range names {
		if strings.Contains(strings.ToLower(name.Queue), text) || strings.Contains(strings.ToLower(name.Tenant), text) {
			found = append(found, name)
		}
	}
	return found
}

// pageNumber reads the number of a page, from 1.
func pageNumber(text string, of, size int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	return max(1, min(n, (of+size-1)/size))
}

// pager links to the pages of a list.
func pager(to string, current, of, size int, parameters ...string) h.Node {
	last := (of + size - 1) / size
	if last <= 1 {
		return h.P(h.Class("quiet"), h.Text(count(of, strings.TrimSuffix(to, "s"))))
	}
	at := func(n int) string { return link(to, append([]string{"page", strconv.Itoa(n)}, parameters...)...) }
	return h.Nav(h.Class("pager"), h.Aria("label", "Pages"),
		h.If(current > 1, h.A(h.Rel("prev"), h.Href(at(current-1)), h.Text("← Previous"))),
		h.Span(h.Text("Page "+number(current)+" of "+number(last)+", "+count(of, strings.TrimSuffix(to, "s")))),
		h.If(current < last, h.A(h.Rel("next"), h.Href(at(current+1)), h.Text("Next →"))),
	)
}
