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

// A budget bounds the work for a page, in steps and in time, so that a page answers quickly
// however much there is. A page says how far it looked.
type budget struct {
	// least steps are done in any case, and most at most.
	least, most int
	end         time.Time
}

func (v *view) budget(least, most int) budget {
	return budget{least, most, time.Now().Add(v.handler.options.LookTime)}
}

// spent reports whether a page that has done this many steps stops.
func (b *budget) spent(done int) bool {
	return done >= b.most || done >= b.least && time.Now().After(b.end)
}

// queueNames returns the queues that a token can name, in order: those of all tenants for
// an operator, those of its tenant for a token for admin on any queue, and otherwise those
// that the token itself lists. listed is false in the last case, where others may exist.
func (v *view) queueNames() (names []broker.TenantQueue, listed bool, err error) {
	if !v.may(capability.OpAdmin, "") {
		for _, pattern := range v.session.token.Inspect().Queues {
			if name, ok := exactName(pattern); ok {
				names = append(names, broker.TenantQueue{Tenant: v.caller.Tenant(), Queue: name})
			}
		}
		return names, false, nil
	}
	if v.caller.Tenant() == "" {
		for queue, err := range v.caller.AllQueues(v.ctx()) {
			if err != nil {
				return nil, true, err
			}
			names = append(names, queue)
		}
	} else {
		for name, err := range v.caller.Queues(v.ctx()) {
			if err != nil {
				return nil, true, err
			}
			names = append(names, broker.TenantQueue{Tenant: v.caller.Tenant(), Queue: name})
		}
	}
	slices.SortFunc(names, func(a, b broker.TenantQueue) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Queue, b.Queue))
	})
	return names, true, nil
}

// exactName returns the queue that a pattern names, if it names one.
func exactName(p capability.Pattern) (string, bool) {
	text := p.String()
	if strings.HasSuffix(text, "*") {
		return "", false
	}
	return strings.NewReplacer("%25", "%", "%2C", ",", "%2A", "*").Replace(text), true
}

// of returns the caller that reads the queue of a tenant.
func (v *view) of(q broker.TenantQueue) (broker.Caller, error) {
	if q.Tenant == v.caller.Tenant() {
		return v.caller, nil
	}
	return v.caller.InTenant(v.ctx(), q.Tenant)
}

// A counted queue is one with its figures.
type counted struct {
	broker.TenantQueue
	broker.Figures
	problem string // why there are no figures
}

func (v *view) count(q broker.TenantQueue) counted {
	c := counted{TenantQueue: q}
	caller, err := v.of(q)
	if err == nil && !caller.Allows(v.ctx(), capability.OpStats, q.Queue) { // a refusal would be a line in the log
		c.problem = "your token does not allow " + capability.OpStats.String()
		return c
	}
	if err == nil {
		c.Figures, err = caller.Figures(v.ctx(), q.Queue, v.recent)
	}
	if err != nil {
		c.problem = wireerr.Of(err).Message()
	}
	return c
}

// countSome counts the first queues, as many as a page has time for.
func (v *view) countSome(names []broker.TenantQueue) []counted {
	limit := v.budget(leastCounted, mostCounted)
	var queues []counted
	for i, name := range names {
		if limit.spent(i) {
			break
		}
		queues = append(queues, v.count(name))
	}
	return queues
}

// foreignTenant is the tenant parameter of links to a queue; empty for those of the token.
func (v *view) foreignTenant(tenant string) string {
	if tenant == v.session.token.Tenant() {
		return ""
	}
	return tenant
}

func (v *view) queueLink(q broker.TenantQueue) h.Node {
	return h.A(h.Href(link("queue", "name", q.Queue, "tenant", v.foreignTenant(q.Tenant))), h.Text(q.Queue))
}

const (
	// The budget of the overview, in queues.
	leastCounted, mostCounted = 50, 1000
	// busiest is how many queues a table of the overview has.
	busiest = 10
)

func overview(v *view, p *page) error {
	names, listed, err := v.queueNames()
	if err != nil {
		return err
	}
	p.heading(h.Text("Overview"))
	queues := v.countSome(names)
	var total driver.Stats
	for i := range queues {
		total = total.Plus(queues[i].Stats)
	}
	p.live("figures", v.figures(total, len(names), len(queues), listed))
	p.live("history", h.Section(h.Class("panel"), h.H2(h.Text("Last hour")), drawCharts(v.total(queues), time.Now())))
	p.live("busiest", h.Div(h.Class("columns uneven"),
		h.Section(h.Class("panel"), h.H2(h.Text("Busiest queues")), v.busiest(queues)),
		h.Section(h.Class("panel"), h.H2(h.Text("Dead letters")), v.deadest(queues)),
	))
	if v.mayMeasure() && v.handler.options.Health != nil {
		health := v.handler.options.Health(v.ctx())
		p.live("health", h.Section(h.Class("panel"), h.H2(h.Text("Daemon")), healthWords(&health, v.handler.options.Version)))
	}
	return nil
}

// figures are the totals of the overview.
func (v *view) figures(total driver.Stats, known, counted int, listed bool) h.Node {
	tile := func(class, name string, n int) h.Node {
		return h.Div(h.Class("tile "+class), h.Dt(h.Text(name)), h.Dd(h.Text(number(n))))
	}
	nodes := h.Group{tile("", "queues", known)}
	for _, s := range states {
		nodes = append(nodes, tile(stateClass(s), string(s), countOf(&total, s)))
	}
	result := h.Group{h.Dl(h.Class("tiles"), nodes), throttledNote(&total)}
	switch {
	case counted < known:
		result = append(result, h.P(h.Class("quiet"), h.Text("Messages of the first "+number(counted)+" queues. Queues has them all.")))
	case !listed:
		result = append(result, h.P(h.Class("quiet"), h.Text("The queues that your token names. A list of all needs a token for admin on any queue.")))
	}
	return result
}

// busiest shows the queues with most waiting messages.
func (v *view) busiest(queues []counted) h.Node {
	queues = slices.Clone(queues)
	slices.SortStableFunc(queues, func(a, b counted) int { return cmp.Compare(b.Waiting(), a.Waiting()) })
	if len(queues) == 0 {
		return empty("Queues appear here when something is sent to them: mailbox send QUEUE BODY")
	}
	heads := make([]string, len(queueColumns))
	for i := range queueColumns {
		heads[i] = queueColumns[i].head
	}
	return table("Busiest queues", heads, v.queueRows(queues[:min(len(queues), busiest)]))
}

// deadest shows the queues with most dead letters.
func (v *view) deadest(queues []counted) h.Node {
	queues = slices.DeleteFunc(slices.Clone(queues), func(c counted) bool { return c.Dead == 0 })
	slices.SortStableFunc(queues, func(a, b counted) int { return cmp.Compare(b.Dead, a.Dead) })
	var rows []h.Node
	for _, c := range queues[:min(len(queues), busiest)] {
		rows = append(rows, h.Tr(
			h.Td(h.A(h.Href(link("dead", "queue", c.Queue, "tenant", v.foreignTenant(c.Tenant))), h.Text(c.Queue)), v.tenantTag(c.Tenant)),
			numberCell(c.Dead, "dead"),
		))
	}
	if len(rows) == 0 {
		return empty("All well: no queue has dead letters.")
	}
	return table("Queues with dead letters", []string{"Queue", "#Dead"}, rows)
}

func (v *view) tenantTag(tenant string) h.Node {
	return h.If(v.foreignTenant(tenant) != "", h.Span(h.Class("tag"), h.Text(tenant)))
}
