package console

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

const (
	// The budget of the list of requests, in reply slots.
	leastSlots, mostSlots = 500, 20_000
	// maxSlotsShown bounds the reply slots on a page.
	maxSlotsShown = 200
)

// The states of reply slots, in the order in which pages show them.
var slotStates = []driver.SlotState{driver.SlotPending, driver.SlotResolved, driver.SlotCancelled, driver.SlotExpired}

// slotClass is the class of a state, for its colour.
func slotClass(s driver.SlotState) string {
	switch s {
	case driver.SlotPending:
		return "in_flight"
	case driver.SlotResolved:
		return "answered"
	case driver.SlotExpired:
		return "dead"
	}
	return ""
}

// slotWords names a state as people do.
func slotWords(s driver.SlotState) string {
	if s == driver.SlotResolved {
		return "answered"
	}
	return string(s)
}

func slotBadge(s driver.SlotState) h.Node {
	return h.Span(h.Class("state "+slotClass(s)), h.Text(slotWords(s)))
}

func requestList(v *view, p *page) error {
	p.heading(h.Text("Requests"))
	p.add(h.Form(h.Class("filter"), h.Method("get"), h.Action("request"), h.Role("search"), hiddenField("tenant", v.tenant),
		field("Open a request by its slot", "slot", "", h.Required(), h.Data("search", ""), h.Attr("spellcheck", "false")), h.Button(h.Type("submit"), h.Text("Open"))))
	if !v.may(capability.OpAdmin, "") {
		p.add(lacks(capability.OpAdmin, "a list of all requests, on any queue,"))
		return nil
	}
	state := driver.SlotState(v.get("state"))
	counts := make(map[driver.SlotState]int)
	now := time.Now()
	limit := v.budget(leastSlots, mostSlots)
	var rows []h.Node
	looked, cut := 0, false
	for slot, err := range v.caller.Replies().List(v.ctx()) {
		if errors.Is(err, driver.ErrUnsupported) {
			p.add(empty("The backend of this daemon does not list reply slots."))
			return nil
		}
		if err != nil {
			return err
		}
		if cut = limit.spent(looked); cut {
			break
		}
		looked++
		counts[slot.State]++
		if (state == "" || state == slot.State) && len(rows) < maxSlotsShown {
			rows = append(rows, h.Tr(
				h.Td(h.A(h.Class("id"), h.Href(link("request", "slot", slot.ID, "tenant", v.tenant)), h.Text(slot.ID))), h.Td(slotBadge(slot.State)),
				h.Td(ago(slot.CreatedAt, now)), h.Td(ago(slot.ExpiresAt, now)), h.Td(ago(slot.ResolvedAt, now))))
		}
	}
	p.live("requests", v.slotTabs(string(state), counts, looked), slotTable(rows, looked, cut))
	return nil
}

// slotTabs are the states with their counts, as filters.
func (v *view) slotTabs(current string, counts map[driver.SlotState]int, looked int) h.Node {
	tab := func(class, label, state string, n int) h.Node {
		return h.Li(h.A(h.Class("tile "+class), h.Href(link("requests", "state", state, "tenant", v.tenant)), h.If(state == current, h.Aria("current", "true")), h.Span(h.Text(label)), h.Strong(h.Text(number(n)))))
	}
	nodes := h.Group{tab("", "all", "", looked)}
	for _, s := range slotStates {
		nodes = append(nodes, tab(slotClass(s), slotWords(s), string(s), counts[s]))
	}
	return h.Ul(h.Class("tiles"), h.Aria("label", "States"), nodes)
}

func slotTable(rows []h.Node, looked int, cut bool) h.Node {
	if len(rows) == 0 {
		return empty("No request waits here. One appears when a program calls another and waits for its answer.")
	}
	note := "The " + count(len(rows), "request") + " that expire first; " + number(looked) + " were looked at."
	switch {
	case cut:
		note += " There are more."
	case len(rows) < maxSlotsShown:
		note = count(len(rows), "request") + "."
	}
	return h.Group{table("Requests", []string{"Slot", "State", "Asked", "Expires", "Answered"}, rows), h.P(h.Class("quiet"), h.Text(note))}
}

func requestPage(v *view, p *page) error {
	id := v.get("slot")
	if id == "" {
		return invalid("slot", "is missing; want the id of a reply slot")
	}
	slot, err := v.caller.Replies().Get(v.ctx(), id)
	if err != nil {
		return err
	}
	p.title = id
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("requests", "tenant", v.tenant)), h.Text("Requests"))))
	p.heading(h.Code(h.Text(id)), v.button(slot.State == driver.SlotPending && v.mayCancel(), "danger", "Cancel…", "cancel-request", "slot", id))
	now := time.Now()
	var f facts
	f.add("asked", h.Group{moment(slot.CreatedAt), h.Text(", "), ago(slot.CreatedAt, now)})
	f.add("expires", h.Group{moment(slot.ExpiresAt), h.Text(", "), ago(slot.ExpiresAt, now)})
	if !slot.ResolvedAt.IsZero() {
		f.add("answered", h.Group{moment(slot.ResolvedAt), h.Text(", "), ago(slot.ResolvedAt, now)})
	}
	f.text("reply address", driver.SlotAddress(id))
	p.live("facts", h.P(slotBadge(slot.State)), f.list())
	if slot.State == driver.SlotResolved {
		p.live("answer", h.Section(h.Class("panel"), h.H2(h.Text("Answer")), v.answer(&slot.Answer)))
	}
	return nil
}

// answer shows an answer to the tokens that may read it.
func (v *view) answer(a *driver.Answer) h.Node {
	switch {
	case !v.may(capability.OpAsk, ""):
		return lacks(capability.OpAsk, "reading an answer")
	case a.Failure != "":
		return h.Group{failed(a.Failure), h.If(a.FailureKind != "", h.P(h.Class("quiet"), h.Text(a.FailureKind)))}
	}
	return showBody(a.Body)
}

// mayCancel reports whether the session may give up a request.
func (v *view) mayCancel() bool {
	return v.mayChange(capability.OpAdmin, "") || v.mayChange(capability.OpAsk, "")
}

func previewCancelRequest(v *view) (preparation, error) {
	id := v.get("slot")
	slot, err := v.caller.Replies().Get(v.ctx(), id)
	if err == nil {
		err = slot.State.WriteError("cancel", id)
	}
	return preparation{
		title: "Cancel a request", button: "Cancel 1 request", destructive: true, touched: 1, back: link("request", "slot", id),
		sentence: "The caller of request " + id + " gets no answer, and is told so. A worker that handles it is told to stop, and its message is acked.",
	}, err
}

func doCancelRequest(v *view, _ int) (string, error) {
	return "Cancelled request " + v.get("slot") + ".", v.caller.Replies().CancelForPerson(v.ctx(), v.get("slot"))
}
