package console_test

import (
	"html"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// hostileText is a text that sets a variable of the page if a part of it runs.
const hostileText = `"'><script>window.owned=1</script><img src=x onerror="window.owned=1"><svg onload="window.owned=1"></title></textarea></pre><a href="javascript:window.owned=1">`

// The names of queues, schedules and reply slots are shorter.
const hostileQueue, hostileDying = `q"'><img src=x onerror="window.owned=1">`, `d"'><script>window.owned=1</script>`

// hostilePages fills a daemon with the text in every field that a sender or a receiver controls, and returns the pages that show it.
func hostilePages(d *env) (pages []string) {
	t := d.t
	at := func(page string, pairs ...string) string {
		values := make(url.Values)
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}
		return page + "?" + strings.ReplaceAll(values.Encode(), "+", "%20")
	}
	attributed := func(out *driver.Outgoing) {
		out.Attributes = map[string]string{hostileText: hostileText, "content-type": "text/html"}
		out.Group, out.ReplyTo, out.CorrelationID, out.DedupKey = hostileText, hostileText, hostileText, hostileText
	}
	live := d.send("", hostileQueue, hostileText, attributed)
	held := d.work("", hostileQueue, hostileText[:broker.MaxWorkerBytes], 1)
	report := broker.Extension{Receipt: held[0].Receipt, Visibility: time.Hour, Progress: driver.NewProgress(0.4, hostileText)}
	if _, err := d.caller("").Extend(t.Context(), hostileQueue, []broker.Extension{report}); err != nil {
		t.Fatal(err)
	}
	dead := d.send("", hostileDying, hostileText, attributed)
	held = d.work("", hostileDying, hostileText[:broker.MaxWorkerBytes], 1)
	letter := broker.DeadLetterRequest{Receipt: held[0].Receipt, Reason: driver.ReasonFatal, Error: hostileText, ErrorType: hostileText}
	if err := d.caller("").DeadLetter(t.Context(), hostileDying, []broker.DeadLetterRequest{letter}); err != nil {
		t.Fatal(err)
	}
	stored := schedule.Schedule{Name: hostileQueue, Cron: "0 3 * * *", Body: []byte(hostileText), Attributes: map[string]string{hostileText: hostileText}}
	if _, err := d.caller("").PutSchedule(t.Context(), hostileQueue, stored); err != nil {
		t.Fatal(err)
	}
	if err := d.caller("").Configure(t.Context(), hostileQueue, driver.Config{MaxDeliveries: driver.Off}); err != nil { // which the doctor finds
		t.Fatal(err)
	}
	d.request("", hostileQueue, &driver.Answer{Failure: hostileText, FailureKind: hostileText})
	conditions := broker.Selection{Query: driver.Query{Attributes: map[string]string{hostileText: hostileText}}, Group: hostileText, Text: []byte(hostileText)}
	job, err := d.caller("").StartJob(t.Context(), broker.JobRequest{Queue: hostileDying, Action: broker.JobCount, Selection: conditions})
	if err != nil {
		t.Fatal(err)
	}
	_, cause, found := strings.Cut(d.logIn(d.mint("", nil)).get(at("dead", "queue", hostileDying)).body, "cause=")
	if !found {
		t.Fatal("no cause is shown")
	}
	filter := []string{"text", hostileText, "group", hostileText, "attribute", hostileText + "=" + hostileText, "older", hostileText, "priority", hostileText, "reason", hostileText, "cursor", hostileText, "order", hostileText, "limit", hostileText}
	matching := filter[:4]
	return []string{
		"", "queues", at("queues", "q", hostileText), "workers", at("workers", "q", hostileText), "tenants", "health",
		at("queue", "name", hostileQueue), at("queue", append([]string{"name", hostileQueue, "id", hostileText}, filter...)...), at("queue", append([]string{"name", hostileQueue}, matching...)...),
		at("queue", "name", hostileQueue, "id", hostileText), at("queue", "name", hostileQueue, "attribute", hostileText), at("queue", "name", hostileQueue, "state", hostileText),
		at("groups", "queue", hostileQueue), at("message", "queue", hostileQueue, "id", live), at("message", "queue", hostileDying, "id", dead), at("message", "queue", hostileQueue, "id", hostileText),
		"dead", at("dead", "queue", hostileDying), at("dead", "queue", hostileDying, "cause", cause[:12]), at("dead", append([]string{"queue", hostileDying}, filter...)...),
		at("dead", append([]string{"queue", hostileDying}, matching...)...), at("dead", "queue", hostileDying, "cause", hostileText),
		"jobs", at("jobs", "queue", hostileDying), at("job", "id", job.ID), "requests", at("request", "slot", hostileQueue),
		"schedules", at("schedule", "queue", hostileQueue, "schedule", hostileQueue), at("edit-schedule", "queue", hostileQueue, "schedule", hostileQueue),
		at("edit-schedule", "queue", hostileText, "schedule", hostileText, "cron", hostileText, "zone", hostileText, "body", hostileText, "attributes", hostileText),
		"access", at("confirm", "do", "purge", "queue", hostileQueue), at("confirm", append([]string{"do", "redrive", "queue", hostileDying}, matching...)...),
	}
}

// TestHostileTextStaysTextInBrowser is CON-1: scripts in every field that a sender or a receiver controls, and in every
// parameter of a filter, stay text on every screen of a real browser, also in the parts that live updates replace.
func TestHostileTextStaysTextInBrowser(t *testing.T) {
	d := open(t)
	unseen := make(map[string]bool)
	for _, path := range console.ScreenPaths() {
		unseen[path] = true
	}
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	for _, page := range hostilePages(d) {
		path, _, _ := strings.Cut(page, "?")
		delete(unseen, path)
		p.Open(p.base + page)
		p.WaitFor(`document.readyState === "complete" && document.querySelector("main") && (!document.querySelector("[data-live]") || document.documentElement.dataset.updates > 0)`)
		for _, problem := range p.Problems() {
			if !strings.Contains(problem, "Failed to load resource") { // an error page has its status
				t.Errorf("%s: %s", page, problem)
			}
		}
		var seen struct {
			Made  string
			Shown bool
		}
		p.Eval(`({
			made: (window.owned ? "owned " : "") + [...document.querySelectorAll("img[onerror], svg[onload], main script, a[href^='javascript:'], iframe, object, embed")].map((e) => e.outerHTML).join(),
			shown: document.body.textContent.includes("window.owned") || [...document.querySelectorAll("input, textarea")].some((e) => e.value.includes("window.owned")),
		})`, &seen)
		if seen.Made != "" {
			t.Errorf("%s runs what a sender wrote: %s", page, seen.Made)
		}
		if !seen.Shown && path != "tenants" { // the names of tenants are the operator's
			t.Errorf("%s does not show what a sender wrote", page)
		}
	}
	if len(unseen) > 0 {
		t.Errorf("screens without hostile text: %q; give each a line in hostilePages", slices.Sorted(maps.Keys(unseen)))
	}
	p.show("workers")
	var names []string
	p.Eval(`[...document.querySelectorAll("#workers td:first-child > span:first-child")].map((e) => e.textContent)`, &names)
	name := hostileText[:broker.MaxWorkerBytes]
	if !slices.Contains(names, name) {
		t.Errorf("the names are shown as %q, want %q among them", names, name)
	}
	if page := d.logIn(d.mint("", nil)).get("workers").body; !strings.Contains(page, html.EscapeString(name)) {
		t.Errorf("the name is not escaped: %s", main(page))
	}
}
