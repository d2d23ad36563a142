package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// maxGroupsShown bounds the groups on a page.
const maxGroupsShown = 100

// groupedStates are those of the messages that wait.
var groupedStates = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight}

// A groupBacklog counts the messages of a group that wait.
type groupBacklog struct {
	name   string
	counts map[driver.State]int
	all    int
	oldest time.Time // when the first of them was sent
}

func groupList(v *view, p *page) error {
	queue := v.get("queue")
	if queue == "" {
		return invalid("queue", "is missing; want the name of a queue")
	}
	p.title = "Groups of " + queue
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("queues", "tenant", v.tenant)), h.Text("Queues")), h.Text(" / "), h.A(h.Href(link("queue", "name", queue, "tenant", v.tenant)), h.Text(queue))))
	p.heading(h.Text(p.title))
	if !v.may(capability.OpPeek, queue) {
		p.add(lacks(capability.OpPeek, "looking at messages"))
		return nil
	}
	further := v.get("look") != ""
	if further { // looks far, and so is not repeated
		p.add(v.groups(queue, true))
		return nil
	}
	p.live("groups", v.groups(queue, false))
	return nil
}

// groups shows the groups with most waiting messages, of those that were looked at.
func (v *view) groups(queue string, further bool) h.Node {
	s := broker.Search{Query: driver.Query{States: groupedStates}, Least: leastSearched, Most: firstSearched, Until: v.lookEnd(further)}
	if further {
		s.Most = mostSearched
	}
	byName := make(map[string]*groupBacklog)
	var found []*groupBacklog
	for m, err := range v.caller.Unmetered().Search(v.ctx(), queue, &s) { // no message is shown
		if err != nil {
			return failed(wireerr.Of(err).Message())
		}
		b := byName[m.Group]
		if b == nil {
			b = &groupBacklog{name: m.Group, counts: make(map[driver.State]int), oldest: m.EnqueuedAt}
			byName[m.Group], found = b, append(found, b)
		}
		b.counts[m.State]++
		b.all++
		if m.EnqueuedAt.Before(b.oldest) {
			b.oldest = m.EnqueuedAt
		}
	}
	if len(found) == 0 {
		return empty("No message waits in the queue.")
	}
	slices.SortFunc(found, func(a, b *groupBacklog) int {
		return cmp.Or(cmp.Compare(b.all, a.all), strings.Compare(a.name, b.name))
	})
	now := time.Now()
	var rows []h.Node
	for _, b := range found[:min(len(found), maxGroupsShown)] {
		name := h.Node(h.Span(h.Class("quiet"), h.Text("without a group")))
		if b.name != "" {
			name = h.A(h.Href(link("queue", "name", queue, "tenant", v.tenant, "group", b.name)), h.Text(shorten(b.name, 80)))
		}
		cells := h.Group{h.Td(h.Class("long"), name)}
		for _, state := range groupedStates {
			cells = append(cells, numberCell(b.counts[state], stateClass(state)))
		}
		rows = append(rows, h.Tr(cells, numberCell(b.all, ""), h.Td(ago(b.oldest, now))))
	}
	return h.Group{table("Groups", []string{"Group", "#Ready", "#Delayed", "#In flight", "#All", "Oldest"}, rows), v.groupsExtent(queue, &s, len(found), further)}
}

// groupsExtent says how many messages were counted.
func (v *view) groupsExtent(queue string, s *broker.Search, groups int, further bool) h.Node {
	note := "All that wait: " + count(groups, "group") + "."
	if groups > maxGroupsShown {
		note = "The " + number(maxGroupsShown) + " with most messages of " + count(groups, "group") + "."
	}
	var on h.Node
	if s.Cut {
		var stats *driver.Stats
		if v.may(capability.OpStats, queue) {
			if known, err := v.caller.Stats(v.ctx(), queue); err == nil {
				stats = &known
			}
		}
		note += " Counted in a part of the queue: " + looked(s, stats) + ". Others may have more."
		on = h.If(!further, h.A(h.Href(link("groups", "queue", queue, "tenant", v.tenant, "look", "further")), h.Text("Count further →")))
	}
	return h.P(h.Class("quiet"), h.Text(note+" "), on)
}
