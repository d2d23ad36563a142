package console

import (
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/revocation"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// auditPerPage is how many records of the audit log a page has.
const auditPerPage = 100

func accessPage(v *view, p *page) error {
	p.heading(h.Text("Access"))
	described := v.session.token.Inspect()
	now := time.Now()
	var f facts
	f.add("token", h.Code(h.Text(described.ID.String())))
	f.add("narrowed id", h.Code(h.Text(v.session.token.NarrowedID().String())))
	f.add("session ends", h.Group{moment(v.session.expires), h.Text(", "), ago(v.session.expires, now)})
	if v.session.readOnly {
		f.text("this session", "is read-only")
	}
	p.add(h.Section(h.Class("panel"), h.H2(h.Text("Your token")), f.list(),
		tokenWords(described.Words())))
	if v.mayChange(capability.OpAdmin, "") {
		p.add(v.mintForm())
		p.add(h.Section(h.Class("panel"), h.H2(h.Text("Revoke a token")),
			h.P(h.Class("quiet"), h.Text(revokeWords(v.caller.Tenant() == ""))),
			h.Form(h.Class("filter"), h.Method("post"), h.Action("confirm"), v.csrfField(), hiddenField("do", "revoke"),
				field("Token", "token", "", h.Required(), h.Attr("spellcheck", "false")),
				h.Button(h.Class("danger"), h.Type("submit"), h.Text("Revoke…")))))
	}
	p.add(h.Section(h.Class("panel"), h.H2(h.Text("Audit")), v.audit(now))) // not live: the log of a fleet is long
	return nil
}

// tokenWords shows what a token allows.
func tokenWords(words []string) h.Node {
	return h.Ul(h.Map(words, func(line string) h.Node { return h.Li(timed(line)) }))
}

func revokeWords(operator bool) string {
	if operator {
		return "Paste the token, or its id. The token that it was narrowed from is revoked, with all tokens narrowed from or minted by that; the id of a narrowed token revokes only what was narrowed from it."
	}
	return "Paste the token. The token that it was narrowed from is revoked, with all tokens narrowed from or minted by that."
}

// audit shows a page of the changes, newest first.
func (v *view) audit(now time.Time) h.Node {
	if !v.may(capability.OpAudit, "") {
		return lacks(capability.OpAudit, "the record of changes")
	}
	records, damaged, err := v.caller.Audit(v.ctx())
	if err != nil {
		return failed(wireerr.Of(err).Message())
	}
	if len(records) == 0 {
		return empty("No change was made yet.")
	}
	all, filter := len(records), v.get("q")
	records = auditWith(records, filter)
	current := pageNumber(v.get("page"), len(records), auditPerPage)
	last := len(records) - (current-1)*auditPerPage
	var rows []h.Node
	for i := last - 1; i >= max(0, last-auditPerPage); i-- {
		rows = append(rows, auditRow(&records[i], now))
	}
	list := h.Group{
		table("Audit", []string{"When", "What", "Queue", "Subject", "#Messages", "Token", "From", "Result"}, rows),
		pager("access", "record", current, len(records), auditPerPage, "q", filter),
	}
	if len(records) == 0 {
		list = h.Group{empty("None of " + count(all, "record") + " has this in it.")}
	}
	return h.Group{
		h.Form(h.Class("filter"), h.Method("get"), h.Action("access"), h.Role("search"),
			field("What, queue, token or address contains", "q", filter, h.Type("search"), h.Data("search", "")),
			h.Button(h.Type("submit"), h.Text("Filter")),
			h.If(filter != "", h.A(h.Href("access"), h.Text("Show all")))),
		list,
		h.If(damaged > 0, h.P(h.Class("quiet"), h.Text(count(damaged, "record")+" cannot be read."))),
	}
}

// auditWith returns the records with the text in one of their columns, in any case.
func auditWith(all []audit.Record, text string) []audit.Record {
	if text == "" {
		return all
	}
	text = strings.ToLower(text)
	var found []audit.Record
	for i := range all {
		r := &all[i]
		if slices.ContainsFunc([]string{r.Operation, r.Queue, r.Tenant, r.Subject, r.TokenID, r.Client, r.Daemon, r.Result},
			func(column string) bool { return strings.Contains(strings.ToLower(column), text) }) {
			found = append(found, *r)
		}
	}
	return found
}

func auditRow(r *audit.Record, now time.Time) h.Node {
	return h.Tr(h.Td(ago(r.At, now)), h.Td(h.Text(r.Operation)),
		h.Td(h.Text(r.Queue), h.If(r.Tenant != "", h.Span(h.Class("tag"), h.Text(r.Tenant)))), h.Td(h.Class("id"), timed(r.Subject)),
		numberCell(r.Count, ""), h.Td(h.Class("id"), h.Text(r.TokenID)), h.Td(h.Text(r.Client), h.If(r.Daemon != "", h.Text(" to "+r.Daemon))), h.Td(h.Text(r.Result)))
}

// revoked reads what a form revokes: a token, or the id of one.
func (v *view) revoked() (token capability.Token, id capability.TokenID, err error) {
	text := v.request.PostForm.Get("token")
	if text == "" {
		return token, id, invalid("token", "is missing")
	}
	if token, err = capability.Parse(text); err == nil {
		return token, token.ID(), nil
	}
	if id, err = capability.ParseTokenID(text); err != nil {
		return token, id, invalid("token", "is neither a token nor the id of one")
	}
	return token, id, nil
}

func previewRevoke(v *view) (preparation, error) {
	token, id, err := v.revoked()
	p := preparation{
		title: "Revoke a token", button: "Revoke 1 token", destructive: true, touched: 1, back: "access",
		sentence: "Token " + id.String() + " is refused from now on, and so is every token narrowed from it or minted by it. They can only ack deliveries that they hold.",
	}
	if err == nil && !token.IsZero() {
		p.sentence = "This revokes the family of the token that you pasted: minted token " + id.String() + " is refused from now on, and so is every token narrowed from it or minted by it. They can only ack deliveries that they hold."
		p.details = tokenWords(token.Inspect().Words())
	}
	if id == v.session.token.ID() || id == v.session.token.NarrowedID() {
		p.sentence += " It is your own: this session ends too."
	}
	return p, err
}

func doRevoke(v *view, _ int) (string, error) {
	token, id, err := v.revoked()
	if err != nil {
		return "", err
	}
	if token.IsZero() {
		err = v.caller.Revoke(v.ctx(), revocation.Revocation{Token: id})
	} else {
		err = v.caller.RevokeToken(v.ctx(), token)
	}
	return "Revoked token " + id.String() + ".", err
}
