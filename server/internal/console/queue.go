package console

import (
	"slices"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

func queuePage(v *view, p *page) error {
	name := v.get("name")
	if name == "" {
		return invalid("name", "is missing; want the name of a queue")
	}
	if err := v.caller.Uses(v.ctx(), name); err != nil {
		return err
	}
	var stats driver.Stats
	counted := v.may(capability.OpStats, name) // asked first: each refusal would be a line in the log
	if counted {
		var err error
		if stats, err = v.caller.Stats(v.ctx(), name); err != nil {
			return err
		}
	}
	p.title = name
	tenant := v.tenant
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("queues", "tenant", tenant)), h.Text("Queues"))))
	p.heading(h.Text(name), v.queueActions(name, &stats, counted)...)
	filter, problem := parseFilter(v.values)
	if problem == "" && v.newestFirst(&filter) {
		problem = oneState(&filter)
	}
	state := v.get("state")
	if counted {
		p.live("states", v.stateTabs(name, state, &stats))
	} else {
		p.add(lacks(capability.OpStats, "counting messages"))
	}
	p.add(h.H2(h.Text("Messages")))
	switch {
	case !v.may(capability.OpPeek, name):
		p.add(lacks(capability.OpPeek, "looking at messages"))
	default:
		p.add(v.messageFilter(name, tenant, state))
		if problem != "" {
			p.add(h.Div(h.ID(messagesID), failed(problem)))
			break
		}
		known := &stats
		if !counted {
			known = nil
		}
		if filter.Cursor != "" { // looks far, and shows what was behind the page before
			p.add(h.Div(h.ID(messagesID), v.messages(name, &filter, known)))
			break
		}
		p.live(messagesID, v.messages(name, &filter, known))
	}
	if filtered := v.filtered(); state == stateClass(driver.StateDead) && problem == "" && v.may(capability.OpDLQ, name) {
		p.add(h.P(h.A(h.Href(link("dead", append([]string{"queue", name, "tenant", tenant}, filtered...)...)), h.Text("Redrive or discard the dead letters of this filter →"))))
	}
	if counted {
		p.live("history", h.Section(h.Class("panel"), h.H2(h.Text("Last hour")), v.history(name, time.Now())))
		p.live("workers", h.Section(h.Class("panel"), h.H2(h.Text("Workers")), v.workersOf(name)))
	}
	p.add(v.queueSettings(name))
	return nil
}

// refused reports whether an error is about the token.
func refused(err error) bool {
	return capability.ReasonOf(err) != ""
}

// queueActions are the changes of a whole queue.
func (v *view) queueActions(name string, stats *driver.Stats, counted bool) []h.Node {
	pause, label := "pause", "Pause"
	if stats.Paused {
		pause, label = "resume", "Resume"
	}
	return []h.Node{
		h.If(counted && stats.Paused, h.Span(h.Class("tag paused"), h.Text("paused"))),
		v.button(counted && v.mayChange(capability.OpAdmin, name), "", label, pause, "queue", name),
		v.button(counted && stats.Waiting() > 0 && v.mayChange(capability.OpPurge, name), "danger", "Purge…", "purge", "queue", name),
	}
}

// stateTabs are the four states with their counts, as filters.
func (v *view) stateTabs(name, current string, stats *driver.Stats) h.Node {
	tab := func(class, label, state string, n int) h.Node {
		return h.Li(h.A(h.Class("tile "+class), h.Href(link("queue", "name", name, "tenant", v.tenant, "state", state)),
			h.If(state == current, h.Aria("current", "true")), h.Span(h.Text(label)), h.Strong(h.Text(number(n)))))
	}
	nodes := h.Group{tab("", "all", "", stats.Waiting()+stats.Dead)}
	for _, s := range states {
		nodes = append(nodes, tab(stateClass(s), string(s), stateClass(s), countOf(stats, s)))
	}
	return h.Group{
		h.Ul(h.Class("tiles"), h.Aria("label", "States"), nodes),
		throttledNote(stats),
		h.P(h.Class("ways"),
			h.If(stats.Waiting() > 0 && v.may(capability.OpPeek, name), h.A(h.Href(link("groups", "queue", name, "tenant", v.tenant)), h.Text("Groups by backlog →"))),
			h.If(stats.Dead > 0 && v.may(capability.OpDLQ, name), h.A(h.Href(link("dead", "queue", name, "tenant", v.tenant)), h.Text("Dead letters by cause →")))),
	}
}

// messagesID is the part of a page to which a filter of messages leads.
const messagesID = "messages"

// messageFilter is the form of the filter.
func (v *view) messageFilter(name, tenant, state string) h.Node {
	return h.Form(h.Class("filter"), h.Method("get"), h.Action("queue#"+messagesID), h.Role("search"),
		hiddenField("name", name), hiddenField("tenant", tenant),
		choice("State", "state", state, "", "all", "ready", "ready", "delayed", "delayed", "in_flight", "in flight", "dead", "dead"),
		h.If(v.tails(name) || v.get("order") != "", choice("Order", "order", v.get("order"), "", "oldest first", newest, "newest first")),
		field("Message id", "id", v.get("id"), h.Data("search", "")),
		field("Body contains", "text", v.get("text")),
		v.moreConditions(h.Group{choice("Dead because", "reason", v.get("reason"), reasons()...), v.limitChoice()}, "reason", "limit"),
		h.Div(h.Class("submit"), h.Button(h.Type("submit"), h.Text("Filter")), h.A(h.Href(link("queue", "name", name, "tenant", tenant)), h.Text("Clear"))),
	)
}

// moreConditions are the fields of a filter that are rarely used. They are open when one of them, or one of the
// further fields with these names, is set.
func (v *view) moreConditions(further h.Node, names ...string) h.Node {
	set := slices.ContainsFunc(append(names, "attribute", "group", "priority", "older"), func(name string) bool { return v.get(name) != "" })
	return h.Details(h.If(set, h.Attr("open", "")), h.Summary(h.Text("More conditions")), h.Div(h.Class("filter"),
		field("Attribute", "attribute", v.get("attribute"), h.Placeholder("name=value")),
		field("Group", "group", v.get("group"), h.Class("short")),
		field("Priority", "priority", v.get("priority"), h.Class("short"), h.Attr("inputmode", "numeric")),
		field("Older than", "older", v.get("older"), h.Placeholder("15m"), h.Class("short")),
		further))
}

// limitChoice chooses how many messages a page shows. An address may have another number.
func (v *view) limitChoice() h.Node {
	limit := v.get("limit")
	options := []string{"20", "20", "", strconv.Itoa(messagesPerPage), "200", "200", "500", "500"}
	if n := messageLimit(limit); limit != "" && !slices.Contains(options, limit) {
		options = append(options, limit, number(n))
	}
	return choice("Show", "limit", limit, options...)
}

// tails reports whether the backend can look at the newest messages of a queue.
func (v *view) tails(queue string) bool {
	traits, err := v.caller.Traits(v.ctx(), queue)
	return err == nil && traits.PeekLast
}

func (v *view) messageLink(queue, id string) h.Node {
	return h.A(h.Class("id"), h.Href(link("message", "queue", queue, "tenant", v.tenant, "id", id)), h.Text(id))
}

func (v *view) messageRow(m *broker.Peeked, now time.Time) h.Node {
	text := preview(m.Body)
	if m.Damaged {
		text = "damaged"
	}
	return h.Tr(
		h.Td(v.messageLink(m.Queue, m.ID), h.If(m.Group != "", h.Span(h.Class("tag"), h.Text(shorten(m.Group, 40))))),
		h.Td(stateBadge(m.State)), h.Td(ago(m.EnqueuedAt, now)), h.Td(ago(m.DueAt, now)), numberCell(m.Deliveries, ""),
		h.Td(h.Class("preview"), h.Code(h.Text(text))), h.Td(h.Class("preview"), h.Text(shorten(m.LastError, 120))),
	)
}

// queueSettings shows the configuration, which needs a token for admin.
func (v *view) queueSettings(name string) h.Node {
	if !v.may(capability.OpAdmin, name) {
		return nil
	}
	config, err := v.caller.Config(v.ctx(), name)
	if err != nil {
		return h.Group{h.H2(h.Text("Settings")), failed(wireerr.Of(err).Message())}
	}
	return h.Details(h.Class("panel"), h.Summary(h.H2(h.Text("Settings"))), configFacts(&config))
}

func configFacts(c *driver.Config) h.Node {
	var f facts
	limit := func(name string, n int) {
		if n == driver.Off {
			f.text(name, "off")
		} else {
			f.text(name, number(n))
		}
	}
	lasting := func(name string, d time.Duration) {
		if d == driver.Off {
			f.text(name, "off")
		} else {
			f.text(name, d.String())
		}
	}
	limit("shards", c.Shards)
	switch {
	case c.StrictGroups:
		f.text("groups", "strict: each in order")
	case c.FairGroups:
		f.text("groups", "fair: quiet groups go first")
	}
	f.text("group limits", c.GroupLimits)
	if !c.StrictGroups && !c.FairGroups {
		lasting("priorities rise every", c.PriorityAging)
	}
	limit("max deliveries", c.MaxDeliveries)
	limit("max messages", c.MaxMessages)
	limit("max bytes", c.MaxBytes)
	limit("max in flight", c.MaxInFlight)
	limit("max dead letters", c.MaxDead)
	lasting("dedup window", c.DedupWindow)
	limit("dedup keys", c.DedupMax)
	lasting("messages are kept", c.RetainReady.Age)
	lasting("dead letters are kept", c.RetainDead.Age)
	lasting("time to live", c.TTL)
	lasting("longest hold", c.MaxHold)
	f.text("dead letters go to", c.DeadLetterTo)
	f.text("annotation", c.Annotation)
	return f.list()
}
