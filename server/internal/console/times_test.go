package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var (
	// copied are the parts of a page that people copy, and the times that the script finds.
	copied  = regexp.MustCompile(`(?s)<pre.*?</pre>|<textarea.*?</textarea>|<time.*?</time>`)
	tags    = regexp.MustCompile(`<[^>]*>`)
	rawTime = regexp.MustCompile(`.{0,40}\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.{0,10}`)
)

// timedPages makes one of each thing with a time, and returns the pages that show it.
func (d *env) timedPages() (pages []string) {
	id := d.send("", "timed", "x", func(out *driver.Outgoing) { out.Delay = time.Hour })
	if _, err := d.caller("").Edit(d.t.Context(), "timed", id, driver.Edit{DeliverAt: time.Now().Add(2 * time.Hour)}); err != nil {
		d.t.Fatal(err)
	}
	pages = append(pages, "message?queue=timed&id="+id, "confirm?do=due&queue=timed&id="+id)
	for _, s := range screensOf(d) {
		pages = append(pages, s.page)
	}
	return pages
}

// TestEveryTimeIsTimeElement is CON-2: the script finds the times of a page, to show them in the zone of the viewer.
func TestEveryTimeIsTimeElement(t *testing.T) {
	d := open(t)
	pages := d.timedPages()
	b := d.logIn(d.mint("", nil))
	check := func(name string, a answer, least int) {
		t.Helper()
		for _, raw := range rawTime.FindAllString(tags.ReplaceAllString(copied.ReplaceAllString(a.body, ""), ""), -1) {
			t.Errorf("%s has a time outside of <time>: %s", name, raw)
		}
		if n := strings.Count(main(a.body), "<time"); n < least {
			t.Errorf("%s has %d times, want %d at least", name, n, least)
		}
	}
	for path, least := range map[string]int{"access": 9, "health": 1, "job?": 2, "message?queue=timed": 5} {
		for _, page := range pages {
			if strings.HasPrefix(page, path) {
				check(page, b.get(page), least)
			}
		}
	}
	for _, page := range pages {
		check(page, b.get(page), 0)
	}
	token := d.mint("", nil)
	check("confirm mint", b.post("confirm", "do", "mint", "csrf", b.csrf(), "operation", "peek", "queues", "*", "lifetime", "1h"), 1)
	check("confirm revoke", b.post("confirm", "do", "revoke", "csrf", b.csrf(), "token", token.Reveal()), 2)
	b.expect(b.submit(b.get(pages[1]), "at", "2040-01-02 03:04"), http.StatusSeeOther)
	check("due", b.get(pages[0]), 4)
}
