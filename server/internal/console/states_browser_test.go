package console_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// looks are the sizes and colours in which pages are checked: every day the first two, which have each size and each colour.
var looks = []struct {
	width  int
	scheme string
}{{1600, "light"}, {400, "dark"}, {1600, "dark"}, {400, "light"}}

// sober checks what the page shows in the looks: axe finds nothing, and it does not scroll sideways.
func (p *tab) sober(axe, name string) {
	p.t.Helper()
	most := 2
	if volume.AtLength() {
		most = len(looks)
	}
	for _, look := range looks[:most] {
		p.Resize(look.width, 900, look.scheme)
		p.accessible(axe, name+", "+look.scheme)
		p.fits(name, look.width)
	}
}

// checkEveryState is CON-2: what pages show besides the screens of TestPagesAreSoundInBrowser. Together they show every
// screen of the console.
func checkEveryState(t *testing.T, shared *browsertest.Browser) {
	axe := browsertest.ReadAxe(t)
	d := open(t)
	p := d.tabOf(t, shared)
	token := d.mint("", nil)
	p.signIn(token.Reveal())
	for _, page := range []string{"", "queues", "workers", "dead", "jobs", "requests", "schedules", "access"} {
		p.show(page)
		p.WaitFor(`document.querySelector("main .empty") !== null`)
		p.sober(axe, "empty "+page)
	}
	d.send("", "orders", "x")
	d.send("acme", "orders", "body of acme")
	delayed := d.send("", "orders", "y", func(out *driver.Outgoing) { out.Delay = time.Hour })
	p.show("edit-schedule") // a new one
	p.sober(axe, "new schedule")
	p.show("queue?name=orders&tenant=acme")
	p.reads("You look into tenant acme")
	p.sober(axe, "tenant")
	p.show("confirm?do=due&queue=orders&id=" + delayed)
	p.at("Change the due time")
	p.sober(axe, "confirm due")
	for form, title := range map[string]string{"mint": "Mint a token", "revoke": "Revoke a token"} {
		p.Resize(1600, 900, "light")
		p.show("access")
		if form == "mint" {
			p.Click("label.check", "peek")
			p.Click("#f-queues", "")
			p.Type("orders.*")
			p.follow("Mint…")
		} else {
			p.Click("#f-token", "")
			p.Paste(d.mint("", nil).Reveal())
			p.follow("Revoke…")
		}
		p.at(title)
		p.sober(axe, "confirm "+form)
		if form == "mint" {
			p.follow("Mint 1 token")
			p.reads("it is not shown again", "Minted token")
			p.sober(axe, "minted")
		}
	}
	p.refused("confirm?do=purge&queue=orders&tenant=acme", "403 Forbidden")
	p.sober(axe, "403")
	p.refused("nowhere", "404 Not Found")
	p.sober(axe, "404")
	p.show("queues")
	p.Type("?")
	p.WaitFor(`document.getElementById("help").open`)
	p.sober(axe, "help")
	p.Press("Escape")
	p.stop()
	p.WaitFor(`document.getElementById("offline").textContent.includes("does not answer")`)
	p.sober(axe, "offline")
	p.start(d)
	shown := make(map[string]bool)
	for _, s := range screensOf(open(t)) {
		path, _, _ := strings.Cut(s.page, "?")
		shown[path] = true
	}
	for _, path := range console.ScreenPaths() {
		if !shown[path] {
			t.Errorf("screen %q is checked nowhere: give it a line in screensOf", path)
		}
	}
}

// widen is CON-2: on a screen of 3,840 pixels the text is larger, and lines stay short enough to read.
func widen(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	screens := screensOf(d)
	p := d.tabOf(t, shared)
	p.signIn(d.mint("", nil).Reveal())
	const width = 3840
	p.Resize(width, 400, "light") // a part of its height, which is cheaper to draw
	for _, s := range screens {
		everyDay := slices.Contains([]string{"overview", "queue", "message", "cause", "confirm", "health"}, s.name) // one of each layout
		if s.name == "error" || !everyDay && !volume.AtLength() {
			continue
		}
		p.Open(p.base + s.page)
		p.fits(s.name, width)
		var seen struct {
			Font, Main, Line float64
			Wide             string // the widest paragraph
		}
		p.Eval(`(() => {
			const size = (e) => parseFloat(getComputedStyle(e).fontSize);
			let widest = { line: 0 };
			for (const e of document.querySelectorAll("main p, main li")) {
				if (!e.checkVisibility() || !e.innerText.trim()) continue;
				const range = document.createRange();
				range.selectNodeContents(e);
				const line = range.getBoundingClientRect().width / size(e);
				if (line > widest.line) widest = { line, wide: e.innerText.slice(0, 100) };
			}
			return { font: size(document.querySelector("main")), main: document.querySelector("main").getBoundingClientRect().width, ...widest };
		})()`, &seen)
		if seen.Font < 18 || seen.Main > 2600 || seen.Line > 75 {
			t.Errorf("%s: text of %v pixels in %v pixels, lines of %v em: %q", s.name, seen.Font, seen.Main, seen.Line, seen.Wide)
		}
	}
}
