package console_test

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
)

var hrefs = regexp.MustCompile(`(?:href|action)="([^"]*)"`)

// TestOperatorStaysInTenant is CON-2: every link of every page about a tenant leads to pages about it, forms included.
func TestOperatorStaysInTenant(t *testing.T) {
	d := open(t)
	d.send("", "own", "x")
	d.send("acme", "orders", "x", inGroup("g"))
	d.deadLetter("acme", "emails", "x", "boom")
	d.schedule("acme", "orders", "nightly")
	d.request("acme", "rates", nil)
	d.work("acme", "orders", "billing@host-7:1", 1)
	b := d.logIn(d.mint("", nil))
	b.expect(b.get(""), 200, `href="tenants"`)
	a := b.get("tenants")
	b.expect(a, 200, `<th scope="row">acme</th><td class="number ">2</td>`, "without a tenant", `aria-label="dead letters of acme"`)
	left := map[string]bool{"tenants": true, "access": true, "health": true, "./": true, "login": true, "logout": true, "#main": true} // are not about a tenant
	seen := make(map[string]bool)
	var pages []string
	follow := func(from string, a answer) {
		t.Helper()
		for _, m := range hrefs.FindAllStringSubmatch(a.body, -1) {
			target := html.UnescapeString(m[1])
			parsed, err := url.Parse(target)
			if err != nil || strings.Contains(parsed.Path, ".css") || strings.Contains(parsed.Path, ".svg") || strings.HasPrefix(target, "#") {
				continue
			}
			switch tenant := parsed.Query().Get("tenant"); {
			case strings.HasPrefix(m[0], "action"):
				if !left[parsed.Path] && !strings.Contains(a.body, `type="hidden" name="tenant" value="acme"`) {
					t.Errorf("%s: the form to %s leaves the tenant", from, target)
				}
			case tenant == "acme" && !seen[target]:
				seen[target] = true
				pages = append(pages, target)
			case tenant == "" && !left[parsed.Path]:
				t.Errorf("%s: the link to %s leaves the tenant", from, target)
			}
		}
	}
	for _, page := range []string{"queues", "jobs", "requests", "workers", "dead", "schedules", "groups?queue=orders", "dead?queue=emails", "message?queue=orders&id=x", "?"} {
		pages = append(pages, page+map[bool]string{true: "&", false: "?"}[strings.Contains(page, "?")]+"tenant=acme")
	}
	for len(pages) > 0 && len(seen) < 200 {
		page := pages[0]
		pages = pages[1:]
		follow(page, b.get(strings.TrimPrefix(page, "./")))
	}
	for _, part := range []string{"queue?", "message?", "dead?", "request?", "schedule?", "groups?", "jobs?"} {
		found := false
		for page := range seen {
			found = found || strings.HasPrefix(page, part)
		}
		if !found {
			t.Errorf("no page %s was reached", part)
		}
	}
}

// TestTenantsAreForOperators is CON-1.
func TestTenantsAreForOperators(t *testing.T) {
	d := open(t)
	d.send("acme", "orders", "x")
	for name, b := range map[string]*browser{
		"tenant":        d.logIn(d.tokenOf("acme")),
		"without admin": d.logIn(d.mint("", []capability.Operation{capability.OpStats}, capability.AnyQueue())),
	} {
		t.Run(name, func(t *testing.T) {
			b.lacks(b.get("queues"), `href="tenants"`)
			a := b.get("tenants")
			b.expect(a, 200, "Your token does not allow")
			b.lacks(a, "acme</th>", "orders")
		})
	}
}
