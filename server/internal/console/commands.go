package console

import (
	"encoding/json"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// quoted returns a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// commands shows how to look at a message from a terminal, with the token in MAILBOX_TOKEN.
func commands(queue, id string) g.Node {
	body, _ := json.Marshal(map[string]string{"topic": queue, "msg_id": id}) // strings can be encoded
	lines := []string{
		"mailbox trace " + quoted(id) + " --queue " + quoted(queue),
		`curl -H "Authorization: Bearer $MAILBOX_TOKEN" "$MAILBOX_ADDR/v1/life" -d ` + quoted(string(body)),
	}
	return h.Details(h.Class("panel"), h.Summary(h.H2(g.Text("In a terminal"))),
		g.Map(lines, func(line string) g.Node { return h.Pre(h.Class("body"), h.TabIndex("0"), g.Text(line)) }))
}
