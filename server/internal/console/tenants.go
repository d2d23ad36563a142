package console

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// operates reports whether the session is of an operator, who looks into all tenants.
func (v *view) operates() bool {
	c := v.handler.broker.Caller(v.session.token, v.origin()).Existing()
	return c.Tenant() == "" && c.Allows(v.ctx(), capability.OpAdmin, "")
}

// A tenantRow has the figures of a tenant.
type tenantRow struct {
	name            string
	queues, counted int
	total           driver.Stats
}

func tenantList(v *view, p *page) error {
	p.heading(h.Text("Tenants"))
	if !v.operates() {
		p.add(lacks(capability.OpAdmin, "a list of all tenants, on any queue and without a tenant,"))
		return nil
	}
	names, _, err := v.queueNames()
	if err != nil {
		return err
	}
	limit := v.budget(leastCounted, mostCounted)
	byName := make(map[string]*tenantRow)
	var tenants []*tenantRow
	counted := 0
	for _, name := range names {
		t := byName[name.Tenant]
		if t == nil {
			t = &tenantRow{name: name.Tenant}
			byName[name.Tenant], tenants = t, append(tenants, t)
		}
		t.queues++
		if !limit.spent(counted) {
			c := v.count(name)
			t.total = t.total.Plus(c.Stats)
			t.counted++
			counted++
		}
	}
	slices.SortFunc(tenants, func(a, b *tenantRow) int {
		return cmp.Or(cmp.Compare(b.total.Waiting()+b.total.Dead, a.total.Waiting()+a.total.Dead), strings.Compare(a.name, b.name))
	})
	if len(tenants) == 0 {
		p.live("tenants", empty("No tenant has a queue yet. A token of a tenant makes one: mailbox cap mint --tenant NAME"))
		return nil
	}
	current := pageNumber(v.get("page"), len(tenants), queuesPerPage)
	var rows []h.Node
	for _, t := range tenants[(current-1)*queuesPerPage : min(len(tenants), current*queuesPerPage)] {
		rows = append(rows, t.row())
	}
	note := "Queues, messages and dead letters of " + count(len(names), "queue") + "."
	if counted < len(names) {
		note = "Messages of the first " + number(counted) + " of " + count(len(names), "queue") + "; a tenant's page of queues has them all."
	}
	p.live("tenants", table("Tenants", []string{"Tenant", "#Queues", "#Ready", "#Delayed", "#In flight", "#Dead", "Look into"}, rows),
		pager("tenants", "tenant", current, len(tenants), queuesPerPage), h.P(h.Class("quiet"), h.Text(note)))
	return nil
}

// row is the row of a tenant, with links that stay in it.
func (t *tenantRow) row() h.Node {
	cells := h.Group{h.Th(h.Scope("row"), h.Text(cmp.Or(t.name, "without a tenant"))), numberCell(t.queues, "")}
	for _, s := range states {
		cells = append(cells, numberCell(countOf(&t.total, s), stateClass(s)))
	}
	var into h.Group
	if t.name != "" {
		for _, to := range []struct{ page, label string }{{"queues", "queues"}, {"workers", "workers"}, {"dead", "dead letters"}, {"jobs", "jobs"}, {"requests", "requests"}, {"schedules", "schedules"}} {
			into = append(into, h.A(h.Href(link(to.page, "tenant", t.name)), h.Aria("label", to.label+" of "+t.name), h.Text(to.label)), h.Text(" "))
		}
	}
	return h.Tr(cells, h.Td(into))
}
