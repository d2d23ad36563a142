package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
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
	p.heading(h.Text("Queues"))
	p.add(h.Form(h.Class("filter"), h.Method("get"), h.Action("queues"), h.Role("search"), hiddenField("tenant", v.tenant), hiddenField("sort", v.get("sort")),
		field("Name contains", "q", filter, h.Type("search"), h.Data("search", "")),
		h.Button(h.Type("submit"), h.Text("Filter")),
		h.If(filter != "", h.A(h.Href(link("queues", "tenant", v.tenant)), h.Text("Show all"))),
	))
	if !listed {
		p.add(h.Form(h.Class("filter"), h.Method("get"), h.Action("queue"),
			h.P(h.Class("quiet"), h.Text("These are the queues that your token names. A list of all needs a token for admin on any queue; you can open one by its name.")),
			field("Open a queue", "name", "", h.Required()), h.Button(h.Type("submit"), h.Text("Open"))))
	}
	switch {
	case len(names) > 0:
		p.live("queues", v.queuePart(names, filter))
	case filter != "":
		p.live("queues", empty("None of "+count(all, "queue")+" has this in its name."))
	default:
		p.live("queues", empty("No queue yet. One appears when something is sent to it: mailbox send QUEUE BODY"))
	}
	return nil
}

// queuePart is a page of a list of queues, in the order that a person chose.
func (v *view) queuePart(names []broker.TenantQueue, filter string) h.Node {
	sort := v.get("sort")
	column := slices.IndexFunc(queueColumns, func(c queueColumn) bool { return c.sort == sort && c.by != nil })
	of := len(names)
	var queues []counted
	if column >= 0 {
		queues = v.countSome(names)
		of = len(queues)
		by := queueColumns[column].by
		slices.SortStableFunc(queues, func(a, b counted) int { return cmp.Compare(by(&b.Figures), by(&a.Figures)) })
	}
	current := pageNumber(v.get("page"), of, queuesPerPage)
	first, last := (current-1)*queuesPerPage, min(of, current*queuesPerPage)
	if column >= 0 {
		queues = queues[first:last]
	} else {
		for _, name := range names[first:last] {
			queues = append(queues, v.count(name))
		}
	}
	var heads h.Group
	for i := range queueColumns {
		c := &queueColumns[i]
		to := ""
		if c.by != nil || i == 0 {
			to = link("queues", "q", filter, "tenant", v.tenant, "sort", c.sort)
		}
		heads = append(heads, columnHead(c.head, to, i == column))
	}
	return h.Group{
		tableOf("Queues", heads, v.queueRows(queues)), pager("queues", "queue", current, of, queuesPerPage, "q", filter, "tenant", v.tenant, "sort", sort),
		h.If(of < len(names), h.P(h.Class("quiet"), h.Text("Sorted are the first "+number(of)+" of "+count(len(names), "queue")+", by name; a filter finds others."))),
	}
}

// A queueColumn is a column of a list of queues.
type queueColumn struct {
	head, sort string
	// by returns the figure by which the column sorts, most first; nil if it does not.
	by   func(f *broker.Figures) float64
	cell func(f *broker.Figures) h.Node
}

var queueColumns = []queueColumn{
	{head: "Queue"},
	stateColumn(driver.StateReady, "#Ready"),
	{head: "Last hour"},
	stateColumn(driver.StateDelayed, "#Delayed"),
	stateColumn(driver.StateInFlight, "#In flight"),
	stateColumn(driver.StateDead, "#Dead"),
	{"#Oldest", "oldest", func(f *broker.Figures) float64 { return f.OldestReady.Seconds() }, func(f *broker.Figures) h.Node {
		if f.OldestReady <= 0 {
			return h.Td(h.Class("number zero"), h.Text("–"))
		}
		return h.Td(h.Class("number"), h.Text(span(f.OldestReady)))
	}},
	rateColumn("#Sent/s", "sent", func(f *broker.Figures) float64 { return f.PerSecond.Sent }),
	rateColumn("#Done/s", "done", func(f *broker.Figures) float64 { return f.PerSecond.Acked }),
}

func stateColumn(s driver.State, head string) queueColumn {
	return queueColumn{head, stateClass(s), func(f *broker.Figures) float64 { return float64(countOf(&f.Stats, s)) },
		func(f *broker.Figures) h.Node { return numberCell(countOf(&f.Stats, s), stateClass(s)) }}
}

func rateColumn(head, sort string, rate func(f *broker.Figures) float64) queueColumn {
	return queueColumn{head, sort, rate, func(f *broker.Figures) h.Node { return rateCell(rate(f)) }}
}

// queueRows are the rows of a list of queues.
func (v *view) queueRows(queues []counted) h.Group {
	now := time.Now()
	rows := make(h.Group, 0, len(queues))
	for i := range queues {
		c := &queues[i]
		name := h.Td(v.queueLink(c.TenantQueue), v.tenantTag(c.Tenant), h.If(c.Paused, h.Span(h.Class("tag paused"), h.Text("paused"))),
			h.If(c.Throttled > 0, h.Span(h.Class("tag paused"), h.Text(number(c.Throttled)+" throttled"))))
		if c.problem != "" {
			rows = append(rows, h.Tr(name, h.Td(h.ColSpan(strconv.Itoa(len(queueColumns)-1)), h.Class("quiet"), h.Text(c.problem))))
			continue
		}
		cells := h.Group{name}
		for j := range queueColumns[1:] {
			if cell := queueColumns[j+1].cell; cell != nil {
				cells = append(cells, cell(&c.Figures))
			} else {
				cells = append(cells, h.Td(v.sparkline(c, now)))
			}
		}
		rows = append(rows, h.Tr(cells))
	}
	return rows
}

// throttledNote says how many ready messages wait for the limits of their groups.
func throttledNote(stats *driver.Stats) h.Node {
	return h.If(stats.Throttled > 0, h.P(h.Text(number(stats.Throttled)+" of the ready messages are in groups at their limit.")))
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

// pager links to the pages of a list of things.
func pager(to, thing string, current, of, size int, parameters ...string) h.Node {
	last := (of + size - 1) / size
	if last <= 1 {
		return h.P(h.Class("quiet"), h.Text(count(of, thing)))
	}
	at := func(n int) string { return link(to, append([]string{"page", strconv.Itoa(n)}, parameters...)...) }
	return h.Nav(h.Class("pager"), h.Aria("label", "Pages"),
		h.If(current > 1, h.A(h.Rel("prev"), h.Href(at(current-1)), h.Text("← Previous"))),
		h.Span(h.Text("Page "+number(current)+" of "+number(last)+", "+count(of, thing))),
		h.If(current < last, h.A(h.Rel("next"), h.Href(at(current+1)), h.Text("Next →"))),
	)
}
