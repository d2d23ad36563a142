package console

import (
	"bytes"
	"net/http"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/mailboxmq/mailbox/capability"
)

// A page is what a screen shows.
type page struct {
	screen *screen // nil for the login
	title  string
	body   []g.Node
	// fragments are the parts that live streams replace, by id.
	fragments []fragment
}

// A fragment is a part of a page that changes while it is shown.
type fragment struct {
	id   string
	node g.Node
}

func (p *page) add(nodes ...g.Node) { p.body = append(p.body, nodes...) }

// live adds a part that live streams replace.
func (p *page) live(id string, nodes ...g.Node) {
	node := g.Group(nodes)
	p.fragments = append(p.fragments, fragment{id, node})
	p.add(h.Div(h.ID(id), h.Data("live", ""), node))
}

// heading adds the title of a page, with actions at its end.
func (p *page) heading(title g.Node, actions ...g.Node) {
	p.add(h.Div(h.Class("heading"), h.H1(title), h.Div(h.Class("actions"), g.Group(actions))))
}

// problem adds an error, with a way on.
func (p *page) problem(status int, message string, again bool) {
	p.heading(g.Text(p.title))
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
		h.P(h.Class("status"), g.Text(strconv.Itoa(status)+" "+http.StatusText(status))),
		h.P(g.Text(message)), h.P(h.Class("quiet"), g.Text(advice)),
	))
}

// render answers with a page.
func (v *view) render(status int, p *page) {
	var out bytes.Buffer
	_ = v.document(p).Render(&out) // a buffer does not fail
	v.writer.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.writer.WriteHeader(status)
	if v.request.Method != http.MethodHead {
		_, _ = v.writer.Write(out.Bytes()) // the browser may have gone away
	}
}

func (v *view) document(p *page) g.Node {
	return h.Doctype(h.HTML(h.Lang("en"), h.Data("theme", v.theme()),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(g.Text(p.title+" · Mailbox")),
			h.Link(h.Rel("stylesheet"), h.Href(styleSheet.name)),
			h.Link(h.Rel("icon"), h.Type("image/svg+xml"), h.Href(icon.name)),
			h.Script(h.Src(script.name), h.Defer()),
		),
		h.Body(
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to content")),
			v.header(p),
			h.Div(h.ID("offline"), h.Class("banner"), h.Role("status"), h.Hidden("")),
			h.Main(h.ID("main"), h.TabIndex("-1"), g.Iff(p.screen != nil, v.notices), g.Group(p.body)),
			g.If(p.screen != nil, help()),
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

func (v *view) header(p *page) g.Node {
	return h.Header(h.Class("top"),
		h.A(h.Class("brand"), h.Href("./"), h.Img(h.Src(icon.name), h.Alt(""), h.Width("20"), h.Height("20")), g.Text("Mailbox")),
		g.Iff(p.screen != nil, func() g.Node {
			operates := v.operates()
			return h.Nav(h.Aria("label", "Main"), h.Ul(g.Map(screens, func(s screen) g.Node {
				if s.title != s.part || s.path == "tenants" && !operates {
					return nil
				}
				return h.Li(h.A(h.Href(link(s.path, "tenant", v.tenantOf(&s))), g.If(s.title == p.screen.part, h.Aria("current", "page")), g.Text(s.title)))
			})))
		}),
		h.Div(h.Class("tools"),
			g.If(len(p.fragments) > 0, h.Button(h.Type("button"), h.ID("pause"), h.Class("tool"), h.Aria("pressed", "true"), h.Hidden(""), g.Text("Live"))),
			h.Button(h.Type("button"), h.ID("theme"), h.Class("tool"), h.Hidden(""), g.Text("Theme")),
			g.Iff(p.screen != nil, func() g.Node {
				return h.Form(h.Method("post"), h.Action("logout"), v.csrfField(), h.Button(h.Class("tool"), h.Type("submit"), g.Text("Sign out")))
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
func (v *view) notices() g.Node {
	var nodes g.Group
	if n := v.session.told(); n != nil {
		class := "notice bad"
		if n.good {
			class = "notice good"
		}
		// It has the focus, so that the keyboard goes on from here and readers read it.
		nodes = append(nodes, h.P(h.Class(class), h.Role("status"), h.TabIndex("-1"), h.AutoFocus(), g.Text(n.text)))
		if n.secret != "" {
			nodes = append(nodes, copyable("token", "body secret", n.secret))
		}
	}
	if v.tenant != "" {
		nodes = append(nodes, h.P(h.Class("notice"), g.Text("You look into tenant "), h.Strong(g.Text(v.tenant)), g.Text(". Changes need a token of the tenant. "), h.A(h.Href("tenants"), g.Text("All tenants"))))
	}
	return nodes
}

func (v *view) csrfField() g.Node {
	return h.Input(h.Type("hidden"), h.Name("csrf"), h.Value(v.session.csrf))
}

// help is the dialog of keys, which the script opens.
func help() g.Node {
	row := func(key, what string) g.Node {
		return g.Group{h.Dt(h.Kbd(g.Text(key))), h.Dd(g.Text(what))}
	}
	return h.Dialog(h.ID("help"), h.Aria("labelledby", "help-title"),
		h.H2(h.ID("help-title"), g.Text("Keys")),
		h.Dl(h.Class("keys"), row("/", "search or filter"), row("g o", "overview"), row("g q", "queues"), row("g t", "tenants"), row("g w", "workers"), row("g d", "dead letters"), row("g j", "jobs"),
			row("g r", "requests"), row("g s", "schedules"), row("g a", "access"), row("g h", "health"), row("p", "pause or resume live updates"), row("?", "this help")),
		h.Form(h.Method("dialog"), h.Button(h.Class("primary"), g.Text("Close"))),
	)
}

// button is a link to the confirmation of a change; empty without permission.
func (v *view) button(allowed bool, class, label, action string, parameters ...string) g.Node {
	if !allowed {
		return nil
	}
	return h.A(h.Class("button "+class), h.Href(link("confirm", append([]string{"do", action}, parameters...)...)), g.Text(label))
}

// lacks explains that the token does not allow an operation.
func lacks(operation capability.Operation, what string) g.Node {
	return h.P(h.Class("empty"), g.Text("Your token does not allow "), h.Code(g.Text(operation.String())), g.Text(", which "+what+" needs."))
}

// failed shows an error in a part of a page.
func failed(message string) g.Node {
	return h.P(h.Class("notice bad"), h.Role("alert"), g.Text(message))
}

func empty(text string) g.Node { return h.P(h.Class("empty"), g.Text(text)) }

// table is a table in a region that scrolls. Columns that begin with # are numbers.
func table(label string, columns []string, rows []g.Node) g.Node {
	return h.Div(h.Class("scroll"), h.Role("region"), h.Aria("label", label), h.TabIndex("0"), h.Table(
		h.THead(h.Tr(g.Map(columns, func(column string) g.Node {
			if column != "" && column[0] == '#' {
				return h.Th(h.Scope("col"), h.Class("number"), g.Text(column[1:]))
			}
			return h.Th(h.Scope("col"), g.Text(column))
		}))),
		h.TBody(g.Group(rows)),
	))
}

// facts is a list of names and values; those without a value are left out.
type facts []g.Node

func (f *facts) add(name string, value g.Node) {
	*f = append(*f, h.Div(h.Dt(g.Text(name)), h.Dd(value)))
}

func (f *facts) text(name, value string) {
	if value != "" {
		f.add(name, g.Text(value))
	}
}

func (f *facts) list() g.Node { return h.Dl(h.Class("facts"), g.Group(*f)) }

// field is a labelled field of a form.
func field(label, name, value string, attributes ...g.Node) g.Node {
	return h.Div(h.Class("field"), h.Label(h.For("f-"+name), g.Text(label)),
		h.Input(h.ID("f-"+name), h.Name(name), h.Value(value), h.AutoComplete("off"), g.Group(attributes)))
}

// choice is a labelled select. Options are pairs of a value and a text.
func choice(label, name, value string, options ...string) g.Node {
	var nodes g.Group
	for i := 0; i+1 < len(options); i += 2 {
		nodes = append(nodes, h.Option(h.Value(options[i]), g.If(options[i] == value, h.Selected()), g.Text(options[i+1])))
	}
	return h.Div(h.Class("field"), h.Label(h.For("f-"+name), g.Text(label)), h.Select(h.ID("f-"+name), h.Name(name), nodes))
}

// hiddenField carries a parameter through a form; empty ones are left out.
func hiddenField(name, value string) g.Node {
	return g.If(value != "", h.Input(h.Type("hidden"), h.Name(name), h.Value(value)))
}
