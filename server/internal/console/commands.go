package console

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// quoted returns a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// commands shows how to look at a message from a terminal, with the token in MAILBOX_TOKEN, and from
// a program.
func commands(queue, id string) h.Node {
	body, _ := json.Marshal(map[string]string{"topic": queue, "msg_id": id}) // strings can be encoded
	all := h.Group{
		copyable("command", "body", "mailbox trace "+quoted(id)+" --queue "+quoted(queue)),
		copyable("request", "body", `curl -H "Authorization: Bearer $MAILBOX_TOKEN" "$MAILBOX_ADDR/v1/life" -d `+quoted(string(body))),
		copyable("Go code", "body", goCode(queue, id)),
	}
	return h.Details(h.Class("panel"), h.Summary(h.H2(h.Text("As commands and as Go"))), all)
}

// copyable shows a text with a button that copies it, which the script shows.
func copyable(name, class, text string) h.Node {
	return h.Div(h.Class("copyable"),
		h.Pre(h.Class(class), h.TabIndex("0"), h.Aria("label", strings.ToUpper(name[:1])+name[1:]), h.Text(text)),
		h.Button(h.Type("button"), h.Class("tool"), h.Data("copy", ""), h.Aria("label", "Copy the "+name), h.Hidden(), h.Text("Copy")))
}

// goCode returns statements of a Go program that imports remotebox.
func goCode(queue, id string) string {
	return fmt.Sprintf(`box, err := mailbox.OpenURL(ctx, "mailbox://"+os.Getenv("MAILBOX_OAP_ADDR")+%q, &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
if err != nil {
	return err
}
defer box.Close()
for message, err := range box.Peek(ctx, mailbox.Query{ID: %q}) {
	if err != nil {
		return err
	}
	fmt.Printf("%%s %%q\n", message.State, message.Body)
}`, "/"+url.PathEscape(queue), id)
}
