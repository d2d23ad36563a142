package console

import (
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/checkup"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// doctor shows what a check of the daemon from inside finds.
func (v *view) doctor() h.Node {
	var all []checkup.Finding
	if v.handler.options.Health != nil {
		health := v.handler.options.Health(v.ctx())
		all = append(all, checkup.Readiness(health.Missing, health.Notes["profile"])...)
		all = append(all, checkup.Notes(health.Notes)...)
		if disk, ok := checkup.Disk(health.Notes); ok {
			all = append(all, disk)
		}
	}
	all = append(all, checkup.Expiry("token", "the token of this session", "mint another with mailbox cap mint", v.session.token.Inspect().ExpiresAt, time.Now()))
	all = append(all, v.doctorShares()...)
	all = append(all, v.doctorQueues()...)
	var rows []h.Node
	for _, f := range all {
		rows = append(rows, h.Tr(h.Th(h.Scope("row"), h.Text(f.Check)), h.Td(h.Span(h.Class("state finding "+f.Status), h.Text(f.Status))),
			h.Td(h.Class("long"), timed(f.Message)), h.Td(h.Class("long quiet"), h.Text(f.Advice))))
	}
	return table("Doctor", []string{"Check", "Result", "What it found", "What to do"}, rows)
}

// doctorShares checks the limits that tenants and tokens share.
func (v *view) doctorShares() []checkup.Finding {
	for _, s := range append(v.handler.broker.Shares(), v.handler.Shares()...) {
		if float64(s.Used) > nearLimit*float64(s.Limit) {
			return []checkup.Finding{{Check: "shared limits", Status: checkup.Warning, Message: "used to 80 % or more: " + s.Resource, Advice: "see the table of shared limits; an owner that has most is refused first"}}
		}
	}
	return []checkup.Finding{{Check: "shared limits", Status: checkup.OK, Message: "none is used to 80 %"}}
}

// doctorQueues checks the queues, as far as a page looks.
func (v *view) doctorQueues() []checkup.Finding {
	skipped := func(why string) []checkup.Finding {
		return []checkup.Finding{{Check: "queues", Status: checkup.Skipped, Message: why}}
	}
	if !v.may(capability.OpAdmin, "") {
		return skipped("checking queues needs a token for admin on any queue")
	}
	names, _, err := v.queueNames()
	if err != nil {
		return skipped(wireerr.Of(err).Message())
	}
	limit := v.budget(leastCounted, mostCounted)
	var found checkup.Queues
	looked := 0
	for _, name := range names {
		if limit.spent(looked) {
			break
		}
		looked++
		caller, err := v.of(name)
		if err != nil {
			continue
		}
		config, err := caller.Config(v.ctx(), name.Queue)
		if err != nil { // it was deleted meanwhile
			continue
		}
		if c := v.count(name); c.problem == "" {
			shown := name.Queue
			if name.Tenant != "" {
				shown = name.Tenant + "/" + name.Queue
			}
			found.Add(shown, &config, &c.Stats)
		}
	}
	all := found.Findings()
	if looked < len(names) {
		all = append(all, skipped("the first "+number(looked)+" of "+count(len(names), "queue")+" were checked")...)
	}
	return all
}
