package console

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/checkup"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// healthWords shows the state of the daemon.
func healthWords(health *Health, version string) h.Node {
	var f facts
	switch {
	case len(health.Missing) > 0:
		f.add("state", h.Span(h.Class("notice bad"), h.Text("not ready")))
	case health.Degraded:
		f.add("state", h.Span(h.Class("notice bad"), h.Text("degraded")))
	default:
		f.add("state", h.Span(h.Class("ok"), h.Text("ready")))
	}
	for _, name := range health.Missing {
		f.text(strings.ReplaceAll(name, "_", " "), checkup.Advice(name))
	}
	f.text("version", version)
	for _, name := range slices.Sorted(maps.Keys(health.Notes)) {
		f.text(strings.ReplaceAll(name, "_", " "), health.Notes[name])
	}
	return f.list()
}

func healthPage(v *view, p *page) error {
	p.heading(h.Text("Health"))
	if !v.mayMeasure() {
		p.live("health", h.Section(h.Class("panel"), h.H2(h.Text("Daemon")), v.ping()))
		p.add(lacks(capability.OpStats, "the rest of this page, on any queue and without a tenant,"))
		return nil
	}
	if v.handler.options.Health != nil {
		health := v.handler.options.Health(v.ctx())
		p.live("health", h.Section(h.Class("panel"), h.H2(h.Text("Daemon")), healthWords(&health, v.handler.options.Version)))
	}
	p.add(h.Section(h.Class("panel"), h.H2(h.Text("Doctor")), v.doctor())) // looks at queues, and is not repeated
	p.live("limits", h.Section(h.Class("panel"), h.H2(h.Text("Shared limits")), v.limits()))
	if v.handler.options.Settings != nil && v.may(capability.OpAdmin, "") {
		var rows []h.Node
		for _, s := range v.handler.options.Settings() {
			rows = append(rows, h.Tr(h.Th(h.Scope("row"), h.Code(h.Text(s.Key))), h.Td(h.Class("long"), h.Text(s.Value)), h.Td(h.Class("quiet long"), h.Text(s.Help))))
		}
		p.add(h.Details(h.Class("panel"), h.Summary(h.H2(h.Text("Settings"))), table("Settings", []string{"Setting", "Value", "Meaning"}, rows)))
	}
	p.add(h.P(h.Class("quiet"), h.Code(h.Text("mailbox doctor")), h.Text(" makes the same checks from outside, and checks the way from a client to this daemon too: addresses, TLS, the clock of the client and its token.")))
	return nil
}

// ping says whether the backend answers, for tokens that may not know more.
func (v *view) ping() h.Node {
	if err := v.caller.Ping(v.ctx()); err != nil {
		return failed(wireerr.Of(err).Message())
	}
	return h.P(h.Span(h.Class("ok"), h.Text("ready")), h.Text(" The daemon and its backend answer."))
}

// limits shows the use of the limits that tenants and tokens share.
func (v *view) limits() h.Node {
	var rows []h.Node
	for _, s := range append(v.handler.broker.Shares(), v.handler.Shares()...) {
		used := min(1, float64(s.Used)/max(1, float64(s.Limit)))
		class := ""
		if used > nearLimit {
			class = "near"
		}
		limit := numberCell(int(s.Limit), "")
		if s.Limit >= math.MaxInt32 {
			limit = h.Td(h.Class("number"), h.Text("off"))
		}
		rows = append(rows, h.Tr(h.Th(h.Scope("row"), h.Text(s.Resource)), numberCell(int(s.Used), class), limit, numberCell(s.Owners, ""), numberCell(int(s.Refusals), class)))
	}
	return table("Shared limits", []string{"Limit", "#Used", "#Of", "#Owners", "#Refusals"}, rows)
}

// nearLimit is the part of a limit from which on its use is marked.
const nearLimit = 0.8
