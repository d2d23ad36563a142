package console

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

func messagePage(v *view, p *page) error {
	queue, id := v.get("queue"), v.get("id")
	if queue == "" || id == "" {
		return invalid("id", "want the name of a queue and the id of a message")
	}
	further := v.get("look") != ""
	ctx, cancel := context.WithDeadline(v.ctx(), v.lookEnd(further))
	defer cancel()
	trace, err := v.caller.Trace(ctx, queue, id)
	cut := trace.Message == nil && ctx.Err() != nil && v.ctx().Err() == nil
	if err != nil && !cut {
		return err
	}
	p.title = id
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("queue", "name", queue, "tenant", v.tenant)), h.Text(queue))))
	now := time.Now()
	m := trace.Message
	switch {
	case cut:
		p.heading(h.Code(h.Text(id)))
		p.add(h.P(h.Class("notice"), h.Text("The search for the message took too long, and was stopped before it came to the end of the queue. "),
			h.If(!further, h.A(h.Href(link("message", "queue", queue, "tenant", v.tenant, "id", id, "look", "further")), h.Text("Look further →")))))
		p.live("trace", timeline(trace.Events, now))
		return nil
	case m == nil:
		p.heading(h.Code(h.Text(id)))
		p.add(h.P(h.Class("notice"), h.Text("The message is not in the queue any more. This is what the daemon remembers of it.")))
		p.live("trace", timeline(trace.Events, now))
		return nil
	}
	p.heading(h.Code(h.Text(id)), v.messageActions(queue, m)...)
	p.live("facts", h.P(stateBadge(m.State), h.If(m.State == driver.StateInFlight, h.Span(h.Class("quiet"), h.Text(heldWords)))), progress(trace.Progress, now), messageFacts(m, now))
	body := showBody(m.Body)
	if m.Damaged {
		body = failed("The message was changed outside the daemon: its seal does not fit. The body is not shown, and the message will be dead-lettered when it is received.")
	}
	p.add(h.Div(h.Class("columns"),
		h.Section(h.Class("panel"), h.H2(h.Text("Body")), body),
		h.Section(h.Class("panel"), h.H2(h.Text("Attributes")), attributes(m.Attributes)),
	))
	p.add(h.Section(h.Class("panel"), h.H2(h.Text("Envelope")), envelopeFacts(m)))
	p.live("trace", timeline(trace.Events, now))
	p.add(commands(queue, id))
	return nil
}

// heldWords say why a message in flight has no actions.
const heldWords = " It has no actions here: only its receiver can end or change it while the lease lasts."

// messageActions are the changes that the state of a message allows.
func (v *view) messageActions(queue string, m *broker.Peeked) []h.Node {
	traits, err := v.caller.Traits(v.ctx(), queue)
	edits := v.mayChange(capability.OpAdmin, queue) && err == nil && traits.Edit
	dead := v.mayChange(capability.OpDLQ, queue)
	at := []string{"queue", queue, "id", m.ID}
	prioritize := v.button(edits && traits.Priorities, "", "Change priority…", "priority", append(at, "now", strconv.Itoa(m.Priority))...)
	switch m.State {
	case driver.StateReady:
		return []h.Node{v.button(edits, "", "Delay…", "due", at...), prioritize, v.button(edits, "danger", "Remove…", "remove", at...)}
	case driver.StateDelayed:
		return []h.Node{
			v.button(edits, "", "Make ready", "ready", at...), v.button(edits, "", "Change due time…", "due", at...),
			prioritize, v.button(edits, "danger", "Remove…", "remove", at...),
		}
	case driver.StateDead:
		return []h.Node{v.button(dead, "", "Redrive", "redrive", at...), v.button(dead, "danger", "Discard…", "discard", at...)}
	}
	return nil
}

func messageFacts(m *broker.Peeked, now time.Time) h.Node {
	var f facts
	f.add("sent", h.Group{moment(m.EnqueuedAt), h.Text(", "), ago(m.EnqueuedAt, now)})
	if !m.DueAt.IsZero() {
		name := "due"
		if m.State == driver.StateInFlight {
			name = "lease ends"
		}
		f.add(name, h.Group{moment(m.DueAt), h.Text(", "), ago(m.DueAt, now)})
	}
	f.text("deliveries", number(m.Deliveries))
	if !m.FirstReceivedAt.IsZero() {
		f.add("first received", moment(m.FirstReceivedAt))
	}
	f.text("group", m.Group)
	if m.Priority > 0 {
		f.text("priority", strconv.Itoa(m.Priority))
	}
	f.text("reply to", m.ReplyTo)
	f.text("correlation id", m.CorrelationID)
	f.text("dedup key", m.Seal.IdemKey)
	if m.State == driver.StateDead {
		f.add("dead since", h.Group{moment(m.DeadAt), h.Text(", "), ago(m.DeadAt, now)})
		f.text("reason", string(m.Reason))
		f.text("error type", m.ErrorType)
		f.text("died in", m.Source)
		if m.Redrives > 0 {
			f.text("redriven", strconv.Itoa(m.Redrives)+" times")
		}
	}
	f.text("last error", m.LastError)
	return f.list()
}

// envelopeFacts says whether a message is what was sent, and shows what its receivers verify.
func envelopeFacts(m *broker.Peeked) h.Node {
	var f facts
	class, verdict := envelopeVerdict(m)
	f.add("verdict", h.Span(h.Class(class), h.Text(verdict)))
	if m.Damaged {
		return f.list()
	}
	f.add("hash chain", h.Code(h.Text(m.Seal.HashChain.String())))
	f.add("body hash", h.Code(h.Text(m.Seal.PayloadHash(m.Body).String())))
	if m.Seal.Signature.IsZero() {
		f.text("signature", "none: the sender did not sign it")
	} else {
		f.add("signature", h.Group{h.Code(h.Text(m.Seal.Signature.String())), h.Text(" Receivers verify it with the key of the sender, which the daemon does not have.")})
	}
	return f.list()
}

// envelopeVerdict compares a message with its hash chain.
func envelopeVerdict(m *broker.Peeked) (class, verdict string) {
	switch {
	case !m.Fits():
		return "notice bad", "changed outside the daemon: the hash chain does not fit"
	case m.Seal.Absent:
		return "quiet", "unknown: another program put it into the backend without a seal, so there is nothing to compare it with"
	case m.Seal.Renewed:
		return "ok", "as it was sent: the hash chain fitted, and was made again when the message was moved or forwarded"
	}
	return "ok", "as it was sent: the hash chain fits"
}

func attributes(all map[string]string) h.Node {
	if len(all) == 0 {
		return empty("The message has no attributes.")
	}
	var rows []h.Node
	for _, key := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, h.Tr(h.Th(h.Scope("row"), h.Text(key)), h.Td(h.Class("long"), h.Text(all[key]))))
	}
	return table("Attributes", []string{"Name", "Value"}, rows)
}

// timeline shows the trace of a message, oldest first.
func timeline(events []broker.Event, now time.Time) h.Node {
	section := func(node h.Node) h.Node {
		return h.Section(h.Class("panel"), h.H2(h.Text("Trace")), node)
	}
	if len(events) == 0 {
		return section(empty("This daemon remembers no events of the message: it was restarted since, or another daemon served it."))
	}
	var items h.Group
	for _, e := range events {
		note := h.Text(e.Note)
		if e.Kind == broker.EventEdited { // the others may have what a worker wrote
			note = timed(e.Note)
		}
		items = append(items, h.Li(h.Class("event "+e.Kind.String()),
			h.Strong(h.Text(e.Kind.String())),
			h.If(e.Attempt > 0, h.Span(h.Class("quiet"), h.Text("delivery "+number(e.Attempt)))),
			h.If(e.Note != "", h.Span(note)),
			h.Span(h.Class("quiet"), moment(e.At), h.Text(", "), ago(e.At, now)),
			h.If(!e.By.IsZero(), h.Span(h.Class("quiet"), h.Text("by token "+e.By.String()))),
		))
	}
	return section(h.Ol(h.Class("timeline"), items))
}

// due reads a due time of a form, in UTC as people type it and in the form of a
// datetime-local field.
func due(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time in UTC like 2026-01-02 15:04:05")
}
