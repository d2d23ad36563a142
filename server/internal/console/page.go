package console

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// A page is what a screen shows.
type page struct {
	screen *screen // nil for the login
	title  string
	body   []h.Node
	// fragments are the parts that live streams replace, by id.
	fragments []fragment
}

// A fragment is a part of a page that changes while it is shown.
type fragment struct {
	id   string
	node h.Node
}

func (p *page) add(nodes ...h.Node) { p.body = append(p.body, nodes...) }

// live adds a part that live streams replace.
func (p *page) live(id string, nodes ...h.Node) {
	node := h.Group(nodes)
	p.fragments = append(p.fragments, fragment{id, node})
	p.add(h.Div(h.ID(id), h.Data("live", ""), node))
}

// heading adds the title of a page, with actions at its end.
func (p *page) heading(title h.Node, actions ...h.Node) {
	p.add(h.Div(h.Class("heading"), h.H1(title), h.Div(h.Class("actions"), h.Group(actions))))
}

// problem adds an error, with a way on.
func (p *page) problem(status int, message string, again bool) {
	p.heading(h.Text(p.title))
	advice := "Go back, or choose another page above."
	switch {
	case again:
		advice = "Load the page again in a moment."
	case status == http.StatusForbidden:
		advice = "Access shows what your token allows. A token with more rights is a new login."
	case status == http.StatusNotFound:
		advice = "It may have been removed since the page was loaded, or the address is wrong."
	}
	p.add(h.Div(h.Class("panel problem"), h.Role("alert"),
		h.P(h.Class("status"), h.Text(strconv.Itoa(status)+" "+http.StatusText(status))),
		h.P(timed(message)), h.P(h.Class("quiet"), h.Text(advice)),
	))
}

// render answers with a page.
func (v *view) render(status int, p *page) {
	var out bytes.Buffer
	h.Write(&out, v.document(p))
	v.writer.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.writer.WriteHeader(status)
	if v.request.Method != http.MethodHead {
		_, _ = v.writer.Write(out.Bytes()) // the browser may have gone away
	}
}

func (v *view) document(p *page) h.Node {
	return h.Doctype(h.HTML(h.Lang("en"), h.Data("theme", v.theme()),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(h.Text(p.title+" · Mailbox")),
			h.Link(h.Rel("stylesheet"), h.Href(styleSheet.name)),
			h.Link(h.Rel("icon"), h.Type("image/svg+xml"), h.Href(icon.name)),
			h.Script(h.Src(script.name), h.Defer()),
		),
		h.Body(
			h.A(h.Class("skip"), h.Href("#main"), h.Text("Skip to content")),
			v.header(p),
			h.Div(h.ID("offline"), h.Class("banner"), h.Role("status"), h.Hidden()),
			h.Main(h.ID("main"), h.TabIndex("-1"), h.Iff(p.screen != nil, v.notices), h.Group(p.body)),
			h.If(p.screen != nil, help()),
		),
	))
}

// theme returns the chosen theme; empty follows the system.
func (v *view) theme() string {
	cookie, err := v.request.Cookie("mailbox_theme")
	if err != nil || cookie.Value != "dark" && cookie.Value != "light" {
		return ""
	}
	return cookie.Value
}

func (v *view) header(p *page) h.Node {
	return h.Header(h.Class("top"),
		h.A(h.Class("brand"), h.Href("./"), h.Img(h.Src(icon.name), h.Alt(""), h.Width("20"), h.Height("20")), h.Text("Mailbox")),
		h.Iff(p.screen != nil, func() h.Node {
			operates := v.operates()
			return h.Nav(h.Aria("label", "Main"), h.Ul(h.Map(screens, func(s screen) h.Node {
				if s.title != s.part || s.path == "tenants" && !operates {
					return nil
				}
				return h.Li(h.A(h.Href(link(s.path, "tenant", v.tenantOf(&s))), h.If(s.title == p.screen.part, h.Aria("current", "page")), h.Text(s.title)))
			})))
		}),
		h.Div(h.Class("tools"),
			h.If(len(p.fragments) > 0, h.Button(h.Type("button"), h.ID("pause"), h.Class("tool"), h.Aria("pressed", "true"), h.Hidden(), h.Text("Live"))),
			h.Button(h.Type("button"), h.ID("theme"), h.Class("tool"), h.Hidden(), h.Text("Theme")),
			h.Iff(p.screen != nil, func() h.Node {
				return h.Form(h.Method("post"), h.Action("logout"), v.csrfField(), h.Button(h.Class("tool"), h.Type("submit"), h.Text("Sign out")))
			}),
		),
	)
}

// tenantOf is the tenant parameter of a link to a screen: the tenant that an operator looks into, if the screen is about
// one.
func (v *view) tenantOf(s *screen) string {
	if s.path == "tenants" || s.path == "access" || s.path == "health" {
		return ""
	}
	return v.tenant
}

// notices shows what the last change did, and what this session is.
func (v *view) notices() h.Node {
	var nodes h.Group
	if n := v.session.told(); n != nil {
		class := "notice bad"
		if n.good {
			class = "notice good"
		}
		// It has the focus, so that the keyboard goes on from here and readers read it.
		nodes = append(nodes, h.P(h.Class(class), h.Role("status"), h.TabIndex("-1"), h.AutoFocus(), timed(n.text)))
		if n.secret != "" {
			nodes = append(nodes, copyable("token", "body secret", n.secret))
		}
	}
	if v.tenant != "" {
		nodes = append(nodes, h.P(h.Class("notice"), h.Text("You look into tenant "), h.Strong(h.Text(v.tenant)), h.Text(". Changes need a token of the tenant. "), h.A(h.Href("tenants"), h.Text("All tenants"))))
	}
	return nodes
}

func (v *view) csrfField() h.Node {
	return h.Input(h.Type("hidden"), h.Name("csrf"), h.Value(v.session.csrf))
}

// help is the dialog of keys, which the script opens.
func help() h.Node {
	row := func(key, what string) h.Node {
		return h.Group{h.Dt(h.Kbd(h.Text(key))), h.Dd(h.Text(what))}
	}
	return h.Dialog(h.ID("help"), h.Aria("labelledby", "help-title"),
		h.H2(h.ID("help-title"), h.Text("Keys")),
		h.Dl(h.Class("keys"), row("/", "search or filter, of queues where a page has none"), row("g o", "overview"), row("g q", "queues"), row("g t", "tenants"), row("g w", "workers"), row("g d", "dead letters"), row("g j", "jobs"),
			row("g r", "requests"), row("g s", "schedules"), row("g a", "access"), row("g h", "health"), row("p", "pause or resume live updates"), row("?", "this help")),
		h.Form(h.Method("dialog"), h.Button(h.Class("primary"), h.Text("Close"))),
	)
}

// button is a link to the confirmation of a change; empty without permission.
func (v *view) button(allowed bool, class, label, action string, parameters ...string) h.Node {
	if !allowed {
		return nil
	}
	return h.A(h.Class("button "+class), h.Href(link("confirm", append([]string{"do", action}, parameters...)...)), h.Text(label))
}

// lacks explains that the token does not allow an operation.
func lacks(operation capability.Operation, what string) h.Node {
	return h.P(h.Class("empty"), h.Text("Your token does not allow "), h.Code(h.Text(operation.String())), h.Text(", which "+what+" needs."))
}

// failed shows an error in a part of a page.
func failed(message string) h.Node {
	return h.P(h.Class("notice bad"), h.Role("alert"), h.Text(message))
}

func empty(text string) h.Node { return h.P(h.Class("empty"), h.Text(text)) }

// table is a table in a region that scrolls. Columns that begin with # are numbers.
func table(label string, columns []string, rows []h.Node) h.Node {
	return tableOf(label, h.Map(columns, func(column string) h.Node { return columnHead(column, "", false) }), rows)
}

func tableOf(label string, heads, rows h.Group) h.Node {
	return h.Div(h.Class("scroll"), h.Role("region"), h.Aria("label", label), h.TabIndex("0"),
		h.Table(h.THead(h.Tr(heads)), h.TBody(rows)))
}

// columnHead is the head of a column, with a link that sorts by it if that is not empty.
func columnHead(column, sort string, sorted bool) h.Node {
	name, isNumber := strings.CutPrefix(column, "#")
	label := h.Text(name)
	if sort != "" {
		label = h.A(h.Href(sort), label)
	}
	return h.Th(h.Scope("col"), h.If(isNumber, h.Class("number")), h.If(sorted, h.Aria("sort", "descending")), label)
}

// facts is a list of names and values; those without a value are left out.
type facts []h.Node

func (f *facts) add(name string, value h.Node) {
	*f = append(*f, h.Div(h.Dt(h.Text(name)), h.Dd(value)))
}

func (f *facts) text(name, value string) {
	if value != "" {
		f.add(name, h.Text(value))
	}
}

func (f *facts) list() h.Node { return h.Dl(h.Class("facts"), h.Group(*f)) }

// field is a labelled field of a form.
func field(label, name, value string, attributes ...h.Node) h.Node {
	return h.Div(h.Class("field"), h.Label(h.For("f-"+name), h.Text(label)),
		h.Input(h.ID("f-"+name), h.Name(name), h.Value(value), h.AutoComplete("off"), h.Group(attributes)))
}

// choice is a labelled select. Options are pairs of a value and a text.
func choice(label, name, value string, options ...string) h.Node {
	var nodes h.Group
	for i := 0; i+1 < len(options); i += 2 {
		nodes = append(nodes, h.Option(h.Value(options[i]), h.If(options[i] == value, h.Selected()), h.Text(options[i+1])))
	}
	return h.Div(h.Class("field"), h.Label(h.For("f-"+name), h.Text(label)), h.Select(h.ID("f-"+name), h.Name(name), nodes))
}

// hiddenField carries a parameter through a form; empty ones are left out.
func hiddenField(name, value string) h.Node {
	return h.If(value != "", h.Input(h.Type("hidden"), h.Name(name), h.Value(value)))
}
