package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
)

// A focused element is what has the focus after a press of Tab.
type focused struct {
	Text    string
	Visible bool // it is in the window, with an outline
	// Order is where it is relative to the element before: 4 behind it, 2 before it, as Node.compareDocumentPosition says.
	Order int
}

// focus is an expression for the element that has the focus. It remembers that for the next.
const focus = `(() => {
	const e = document.activeElement, before = window.focusedBefore, style = getComputedStyle(e), r = e.getBoundingClientRect();
	window.focusedBefore = e;
	return {
		text: (e.labels?.[0]?.textContent || e.getAttribute("aria-label") || e.textContent).trim(),
		visible: e !== document.body && e.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 &&
			r.width > 0 && r.height > 0 && r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth,
		order: before ? before.compareDocumentPosition(e) & 6 : 4,
	};
})()`

// tabTo presses Tab, or Shift+Tab, until an element with a text has the focus. Each on the way is visible and
// in the order of the document.
func (p *tab) tabTo(key, text string) {
	p.t.Helper()
	order := map[string]int{"Tab": 4, "Shift+Tab": 2}[key]
	p.Eval("window.focusedBefore = document.activeElement === document.body ? null : document.activeElement", nil)
	var way []string
	for range 60 {
		p.Press(key)
		var at focused
		p.Eval(focus, &at)
		way = append(way, at.Text)
		if !at.Visible {
			p.t.Errorf("the focus on %q is not visible", at.Text)
		}
		if at.Order&order == 0 {
			p.t.Errorf("%s goes out of order: %q", key, way)
		}
		if at.Text == text {
			return
		}
	}
	p.t.Fatalf("%s does not come to %q: %q", key, text, way)
}

// useKeyboard is CON-2: from signing in to a confirmed redrive without the mouse.
func useKeyboard(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	d.send("", "invoices", "x")
	for i := range 3 {
		d.deadLetter("", "emails", "x", fmt.Sprintf("refused after %d ms", i))
	}
	p := d.tabOf(t, shared)
	p.Open(p.base + "queues") // which leads to the login, and back
	p.at("Sign in")
	p.Paste(d.mint("", nil).Reveal()) // the field has the focus
	p.tabTo("Tab", "Read only: nothing can be changed in this session")
	p.tabTo("Tab", "Sign in")
	p.tabTo("Shift+Tab", "Token or one-time code")
	p.Press("Enter")
	p.at("Queues")
	p.Type("?")
	p.WaitFor(`document.getElementById("help").open && document.activeElement.closest("#help")`)
	p.Press("Escape")
	p.WaitFor(`!document.getElementById("help").open`)
	p.Type("go")
	p.at("Overview")
	p.tabTo("Tab", "Skip to content")
	p.Press("Enter")
	p.WaitFor(`location.hash === "#main"`)
	p.tabTo("Tab", "emails") // the first link of the content that leads there
	p.Type("gq")
	p.at("Queues")
	p.Type("/")
	p.WaitFor(`document.activeElement.id === "f-q"`)
	p.Type("mai/gq?p\n") // keys are letters in a field
	p.WaitFor(`document.readyState === "complete" && location.search === "?q=mai%2Fgq%3Fp"`)
	p.reads("None of 2 queues")
	p.Type("gd")
	p.at("Dead letters")
	p.tabTo("Tab", "emails")
	p.Press("Enter")
	p.at("Dead letters of emails")
	p.tabTo("Tab", "Redrive all…")
	p.tabTo("Tab", "Jobs")
	p.tabTo("Shift+Tab", "Redrive all…")
	p.Press("Enter")
	p.at("Redrive 3 dead letters")
	p.tabTo("Tab", "Cancel")
	p.Press("Enter")
	p.at("Dead letters of emails")
	p.tabTo("Tab", "Redrive all…")
	p.Press("Enter")
	p.at("Redrive 3 dead letters")
	p.tabTo("Tab", "Dead letters a second at most; 0 for no limit")
	p.Type("500") // Tab has selected what was there
	p.tabTo("Tab", "Redrive 3 dead letters")
	p.Press("Enter")
	p.reads("Started: redriving dead letters of emails.", "at most 500 a second", "3 messages")
	var at focused
	p.Eval(focus, &at)
	if !strings.HasPrefix(at.Text, "Started: redriving") || !at.Visible {
		t.Errorf("after the change the focus is on %+v", at)
	}
	p.tabTo("Tab", "Dead letters")
	if got, want := d.stats("", "emails"), "3 ready, 0 delayed, 0 in flight, 0 dead, paused false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.sound("keyboard")
}

// useSlash is CON-2: / goes to the search of a page, and to that of the queues where a page has none.
func useSlash(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	searches := map[string]bool{"queues": true, "workers": true, "queue": true, "dead-letters": true, "cause": true, "requests": true, "access": true, "search": true, "empty": true}
	screens := screensOf(d)
	p := d.tabOf(t, shared)
	p.signIn(d.mint("", nil).Reveal())
	for _, s := range screens {
		p.Open(p.base + s.page)
		var before, after string
		p.Eval("location.href", &before)
		p.Type("/")
		if !searches[s.name] {
			p.at("Queues")
			before = p.base + "queues#f-q"
		}
		p.WaitFor(`document.activeElement.matches("[data-search]")`)
		if p.Eval("location.href", &after); after != before {
			t.Errorf("%s: / goes to %s, want %s", s.name, after, before)
		}
	}
	p.Open(p.base + "schedules?tenant=acme")
	p.Type("/")
	p.at("Queues")
	p.WaitFor(`location.search === "?tenant=acme" && document.activeElement.id === "f-q"`)
	p.Type("or\n")
	p.WaitFor(`location.search === "?tenant=acme&q=or"`)
	p.reads("1 queue")
}
