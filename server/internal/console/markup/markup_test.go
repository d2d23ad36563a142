package markup_test

import (
	"bytes"
	"html"
	"testing"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/server/internal/console/markup"
)

func rendered(n markup.Node) string {
	var out bytes.Buffer
	markup.Write(&out, n)
	return out.String()
}

func TestNodesAreWritten(t *testing.T) {
	for _, test := range []struct {
		node markup.Node
		want string
	}{
		{nil, ""},
		{markup.Text(`<b>&"'` + "\x00"), "&lt;b&gt;&amp;&#34;&#39;\ufffd"},
		{markup.P(markup.Text("a"), markup.Class("b"), markup.Text("c")), `<p class="b">ac</p>`},
		{markup.P(markup.Group{markup.Hidden(), nil, markup.Group{markup.Data("x", `"><script>`)}, markup.Text("t")}), `<p hidden data-x="&#34;&gt;&lt;script&gt;">t</p>`},
		{markup.Input(markup.Required(), markup.Value("")), `<input required value="">`},
		{markup.Div(markup.If(false, markup.Text("a")), markup.Iff(true, func() markup.Node { return markup.Text("b") })), `<div>b</div>`},
		{markup.Ul(markup.Map([]string{"a", "<"}, func(s string) markup.Node { return markup.Li(markup.Text(s)) })), `<ul><li>a</li><li>&lt;</li></ul>`},
		{markup.Doctype(markup.HTML(markup.Lang("en"))), `<!doctype html><html lang="en"></html>`},
	} {
		if got := rendered(test.node); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func FuzzTextReadsBack(f *testing.F) {
	f.Add(`<script>alert("&amp;")</script>'`)
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) || bytes.ContainsAny([]byte(s), "\x00\r") {
			return // a browser replaces these
		}
		body := rendered(markup.Text(s))
		if bytes.ContainsAny([]byte(body), `<>"'`) {
			t.Errorf("%q is written as %q", s, body)
		}
		if got := html.UnescapeString(body); got != s {
			t.Errorf("%q reads back as %q", s, got)
		}
	})
}
