package console_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// changing is a function for the links and forms of a document that change something. Signing out does not.
const changing = `((d) => [...d.querySelectorAll('a[href^="confirm"], form[method="post"]:not([action="logout"]), form[action="confirm"], form[action="do"]')].map((e) => e.outerHTML))`

// fetched is a function for the documents of pages, as this browser gets them: their titles, and what changes something.
const fetched = `(async (pages) => {
	const all = [];
	for (const page of pages) {
		const d = new DOMParser().parseFromString(await (await fetch(page || "./")).text(), "text/html");
		all.push({ title: d.querySelector("h1").textContent, changes: ` + changing + `(d) });
	}
	return all;
})`

// readOnly is CON-1: a token that may only read, and a read-only session, see no change on any page, and make none by a
// request of their own.
func readOnly(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	var pages []string
	for _, s := range screensOf(d) {
		pages = append(pages, s.page)
	}
	list, _ := json.Marshal(pages)
	dead := d.deadLetter("", "shut", "x", "boom")
	waiting := d.send("", "shut", "y")
	d.schedule("", "shut", "nightly")
	d.deadLetters("", "slow", 100)
	job := d.slowJob("", "slow")
	proctest.Eventually(t, time.Minute, "the jobs of the shop have ended", func() bool {
		jobs, err := d.caller("").Jobs(t.Context(), "emails")
		return err == nil && !slices.ContainsFunc(jobs, func(j broker.Job) bool { return j.State == broker.JobRunning })
	})
	before, counts := d.trail(), d.stats("", "shut")
	p := d.tabOf(t, shared)
	p.signIn(d.reader("").Reveal())
	box := p.another()
	box.Open(box.base + "login")
	box.Click("label.check", "Read only: nothing can be changed in this session")
	box.Click("#token", "")
	box.Paste(d.mint("", nil).Reveal())
	box.Type("\n")
	box.at("Overview")
	for name, reader := range map[string]*tab{"token": p, "session": box} {
		var documents []struct {
			Title   string
			Changes []string
		}
		reader.Eval(fetched+"("+string(list)+")", &documents)
		for i, page := range pages {
			if len(documents[i].Changes) > 0 {
				t.Errorf("%s at %s: %s change something", name, page, documents[i].Changes)
			}
			if strings.HasPrefix(page, "confirm") && documents[i].Title != "Not possible" {
				t.Errorf("%s at %s: the page is %q", name, page, documents[i].Title)
			}
		}
		for _, action := range console.ActionNames() {
			for id, status := range map[string]int{dead: 0, waiting: 0} {
				form, _ := json.Marshal(map[string]string{
					"do": action, "queue": "shut", "id": id, "schedule": "nightly", "slot": "rates-0", "job": job.ID, "token": d.tokenOf("").Reveal(),
					"touched": "9", "form": "f-" + action + id, "at": "2030-01-01 00:00", "operation": "peek", "queues": "*", "lifetime": "1h",
				})
				reader.Eval(`fetch("do", { method: "POST", body: new URLSearchParams({ ...`+string(form)+`, csrf: document.querySelector("form[action=logout] [name=csrf]").value }) }).then((r) => r.status)`, &status)
				if status != 403 {
					t.Errorf("%s: POST of %s is answered with %d", name, action, status)
				}
			}
		}
	}
	if got := d.stats("", "shut"); got != counts {
		t.Errorf("%s, want %s", got, counts)
	}
	if got := d.trail(); !slices.Equal(got, before) {
		t.Errorf("recorded %q", got[len(before):])
	}
}

// fillTenant makes one of everything in a tenant. Every name in it contains that of the tenant.
func (d *env) fillTenant(tenant string) {
	named := func(out *driver.Outgoing) {
		out.Group, out.Attributes = tenant+"-group", map[string]string{tenant + "-key": tenant + "-value"}
	}
	for _, queue := range []string{"orders", tenant + "-queue"} {
		d.send(tenant, queue, tenant+"-body", named)
		d.send(tenant, queue, tenant+"-other", named)
		d.work(tenant, queue, tenant+"-worker", 1)
	}
	d.deadLetter(tenant, tenant+"-dying", tenant+"-dead", tenant+"-error")
	d.schedule(tenant, tenant+"-queue", tenant+"-nightly")
	d.request(tenant, tenant+"-slot", &driver.Answer{Body: []byte(tenant + "-answer")})
	if _, err := d.caller(tenant).StartJob(d.t.Context(), broker.JobRequest{Queue: tenant + "-dying", Action: broker.JobCount}); err != nil {
		d.t.Fatal(err)
	}
	if err := d.caller(tenant).Pause(d.t.Context(), tenant+"-queue"); err != nil {
		d.t.Fatal(err)
	}
}

// crawler is an expression for the documents behind all links of the console, by their addresses, as this browser
// gets them. Links to a part of the rows of a page are left out.
const crawler = `(async () => {
	const documents = {}, next = [location.href];
	while (next.length) {
		const address = next.pop();
		if (address in documents) continue;
		const answer = await fetch(address);
		documents[address] = answer.status + " " + await answer.text();
		for (const a of new DOMParser().parseFromString(documents[address], "text/html").querySelectorAll("a[href]")) {
			const to = new URL(a.getAttribute("href"), address);
			to.hash = "";
			if (!to.searchParams.has("state")) next.push(to.href);
		}
	}
	return documents;
})()`

// crawl reads every page that a person gets to by links, and returns the documents by their addresses.
func (p *tab) crawl() (documents map[string]string) {
	p.t.Helper()
	p.show("")
	p.Eval(crawler, &documents)
	for address, document := range documents {
		if !strings.HasPrefix(document, "200 ") {
			p.t.Errorf("%s: %.300s", address, document)
		}
	}
	p.sound("links")
	return documents
}

// seeTenants is CON-1: the pages of a tenant show nothing of another, and those of an operator show both.
func seeTenants(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	tenants := []string{"acme", "globex"}
	for _, tenant := range tenants {
		d.fillTenant(tenant)
	}
	first := d.tabOf(t, shared)
	tabs := map[string]*tab{"acme": first, "globex": first.another(), "": first.another()}
	for tenant, p := range tabs {
		p.signIn(d.mint(tenant, nil).Reveal())
	}
	kinds := []string{"queue", "body", "worker", "dead", "error", "nightly", "slot", "answer", "group", "value"}
	for i, tenant := range tenants {
		p, other := tabs[tenant], tenants[1-i]
		documents := p.crawl()
		all := ""
		for address, document := range documents {
			all += document
			if at := strings.Index(document, other); at >= 0 {
				t.Errorf("%s sees at %s: %s", tenant, address, document[max(0, at-100):min(len(document), at+100)])
			}
		}
		for _, kind := range kinds {
			if !strings.Contains(all, tenant+"-"+kind) {
				t.Errorf("%s does not see its own %s in %d pages", tenant, kind, len(documents))
			}
		}
		p.show("queues")
		d.send(other, other+"-newcomer", "x")
		d.send(tenant, tenant+"-newcomer", "x")
		p.reads(tenant + "-newcomer") // live
		var text string
		p.Eval("document.documentElement.outerHTML", &text)
		if strings.Contains(text, other) {
			t.Errorf("a live page of %s shows %s", tenant, other)
		}
	}
	all := ""
	for _, document := range tabs[""].crawl() {
		all += document
	}
	for _, tenant := range tenants {
		for _, kind := range []string{"queue", "body", "worker", "dead", "error", "nightly", "group"} {
			if want := tenant + "-" + kind; !strings.Contains(all, want) {
				t.Errorf("the operator does not see %s", want)
			}
		}
		tabs[""].show(fmt.Sprintf("queue?name=%s-queue&tenant=%s", tenant, tenant))
		tabs[""].reads("You look into tenant "+tenant, tenant+"-body")
		var found []string
		if tabs[""].Eval(changing+"(document)", &found); len(found) > 0 {
			t.Errorf("the operator may change %s by %s", tenant, found)
		}
	}
}
