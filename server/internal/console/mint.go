package console

import (
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// lifetimes are those of tokens that the console mints: pairs of a duration and its words.
var lifetimes = []string{"1h", "one hour", "24h", "one day", "720h", "30 days", "8760h", "one year"}

// mintForm asks for a token that allows less than the session's.
func (v *view) mintForm() h.Node {
	var boxes h.Group
	for _, word := range macaroon.Operations[1:] {
		if operation, err := capability.ParseOperation(word); err == nil && v.may(operation, "") {
			boxes = append(boxes, h.Label(h.Class("check"), h.Input(h.Type("checkbox"), h.Name("operation"), h.Value(word)), h.Text(" "+word)))
		}
	}
	return h.Section(h.Class("panel"), h.H2(h.Text("Mint a token")),
		h.P(h.Class("quiet"), h.Text("It allows no more than your token, and ends with it: when yours expires or is revoked.")),
		h.Form(h.Method("post"), h.Action("confirm"), v.csrfField(), hiddenField("do", "mint"),
			h.FieldSet(h.Class("checks"), h.Legend(h.Text("Operations")), boxes),
			h.Div(h.Class("filter"),
				field("Queues: names, prefixes like orders.*, or *", "queues", "", h.Required(), h.Attr("spellcheck", "false")),
				choice("Lifetime", "lifetime", "24h", lifetimes...),
				h.If(v.caller.Tenant() == "", field("Tenant, or none", "for", "", h.Attr("spellcheck", "false"))),
				h.Button(h.Class("primary"), h.Type("submit"), h.Text("Mint…")))))
}

// minting reads the form of a token.
func (v *view) minting() ([]capability.Caveat, error) {
	var operations []capability.Operation
	for _, word := range v.values["operation"] {
		operation, err := capability.ParseOperation(word)
		if err != nil {
			return nil, err
		}
		operations = append(operations, operation)
	}
	if len(operations) == 0 {
		return nil, invalid("operation", "is missing; mark at least one")
	}
	var patterns []capability.Pattern
	for text := range strings.FieldsFuncSeq(v.get("queues"), func(r rune) bool { return r == ',' || r == ' ' }) {
		pattern, err := capability.ParsePattern(text)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, pattern)
	}
	if len(patterns) == 0 {
		return nil, invalid("queues", "is missing; * means all")
	}
	lifetime, err := time.ParseDuration(v.get("lifetime"))
	if err != nil || lifetime <= 0 {
		return nil, invalid("lifetime", "is not a time like 24h")
	}
	return []capability.Caveat{capability.Operations(operations...), capability.Queues(patterns...), capability.ExpiresAt(time.Now().Add(lifetime))}, nil
}

func previewMint(v *view) (preparation, error) {
	p := preparation{
		title: "Mint a token", button: "Mint 1 token", touched: 1, back: "access",
		sentence: "The new token allows this, as far as yours does. It is shown once, on the next page, and can be revoked.",
	}
	caveats, err := v.minting()
	if err != nil {
		return p, err
	}
	own := v.session.token.Inspect()
	narrowed, err := v.session.token.Narrow(caveats...) // for the words of the caveats
	if err != nil {
		return p, err
	}
	described := narrowed.Inspect()
	words := described.Words()[len(own.Words()):]
	fields := h.Group{hiddenField("queues", v.get("queues")), hiddenField("lifetime", v.get("lifetime")), hiddenField("for", v.get("for"))}
	for _, word := range v.values["operation"] {
		fields = append(fields, hiddenField("operation", word))
	}
	if tenant := v.get("for"); tenant != "" {
		words = append([]string{"for tenant " + tenant}, words...)
	}
	p.fields, p.details = fields, tokenWords(words)
	return p, nil
}

func doMint(v *view, _ int) (string, error) {
	caveats, err := v.minting()
	if err != nil {
		return "", err
	}
	token, err := v.caller.Mint(v.ctx(), v.get("for"), caveats)
	if err != nil {
		return "", err
	}
	v.secret = token.Reveal()
	return "Minted token " + token.ID().String() + ". Copy it now: it is not shown again.", nil
}
