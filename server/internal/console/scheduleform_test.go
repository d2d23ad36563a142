package console_test

import (
	"encoding/base64"
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/schedule"
)

// csrf returns the token of the session's forms.
func (b *browser) csrf() string {
	b.t.Helper()
	_, after, _ := strings.Cut(b.get("access").body, `name="csrf" value="`)
	token, _, _ := strings.Cut(after, `"`)
	return token
}

// ask sends the form of a schedule.
func (b *browser) ask(pairs ...string) answer {
	b.t.Helper()
	return b.post("confirm", append([]string{"csrf", b.csrf(), "do", "put-schedule", "catch_up", "one", "encoding", "text"}, pairs...)...)
}

// TestScheduleIsMadeAndChangedByForm is CON-1 and TIME-1.
func TestScheduleIsMadeAndChangedByForm(t *testing.T) {
	d := open(t)
	d.send("", "reports", "x")
	b := d.logIn(d.mint("", nil))
	b.expect(b.get("schedules"), 200, `href="edit-schedule"`)
	b.expect(b.get("edit-schedule"), 200, "New schedule", `<label for="f-queue">`)
	body := "\n{\"a\": 1}\nend"
	confirmation := b.ask("queue", "reports", "schedule", "nightly", "cron", "30 6 * * MON-FRI", "zone", "Asia/Tokyo", "catch_up", "all",
		"body", strings.ReplaceAll(body, "\n", "\r\n"), "attributes", "kind=sales\r\nregion=eu=1\r\n")
	b.expect(confirmation, 200, "Store schedule nightly", "sends a message of 13 bytes to reports, 30 6 * * MON-FRI in Asia/Tokyo", "It is a new schedule.", "06:30:00 JST", "21:30:00.000 UTC")
	b.lacks(confirmation, "data-local")
	a := b.submit(confirmation)
	b.expect(a, http.StatusSeeOther)
	shown := b.get(strings.TrimPrefix(a.header.Get("Location"), "./"))
	b.expect(shown, 200, "Stored schedule nightly.", "06:30:00 JST", "21:30:00.000 UTC", "Change…")
	s, err := d.caller("").Schedule(t.Context(), "reports", "nightly")
	if err != nil || string(s.Schedule.Body) != body || s.Schedule.CatchUp != schedule.CatchUpAll || len(s.Schedule.Attributes) != 2 || s.Schedule.Attributes["region"] != "eu=1" {
		t.Fatalf("stored: %+v, %v", s.Schedule, err)
	}
	b.expect(b.get("edit-schedule?queue=reports&schedule=nightly"), 200, "Change schedule nightly", `value="30 6 * * MON-FRI"`, `readonly`, "\n\n{&#34;a&#34;: 1}\nend</textarea>", "kind=sales\nregion=eu=1\n</textarea>", `<option value="all" selected>`)
	confirmation = b.ask("queue", "reports", "schedule", "nightly", "known", "yes", "every", "15m", "body", "x")
	b.expect(confirmation, 200, "every 15m0s", "It replaces the schedule of this name, which is due 30 6 * * MON-FRI in Asia/Tokyo.")
	b.expect(b.submit(confirmation), http.StatusSeeOther)
	if s, err = d.caller("").Schedule(t.Context(), "reports", "nightly"); err != nil || s.Schedule.Every.Minutes() != 15 || s.Schedule.Cron != "" || len(s.Schedule.Attributes) != 0 {
		t.Errorf("changed: %+v, %v", s.Schedule, err)
	}
}

// TestScheduleFormSaysWhatIsWrongWhere is TIME-1: each error is at its field, and what was typed stays.
func TestScheduleFormSaysWhatIsWrongWhere(t *testing.T) {
	d := open(t)
	d.send("", "reports", "x")
	b := d.logIn(d.mint("", nil))
	for _, c := range []struct{ field, says, name, value string }{
		{"queue", "there is no queue of this name", "queue", "missing"}, {"queue", "", "queue", ""}, {"schedule", "0 bytes", "schedule", ""},
		{"cron", "want 5", "cron", "nonsense"}, {"cron", "either a cron expression or an interval", "cron", ""}, {"cron", "never due", "cron", "0 0 30 2 *"},
		{"zone", "Nowhere", "zone", "Nowhere/City"}, {"every", "want an interval", "every", "soon"}, {"attributes", "NAME=VALUE", "attributes", "lonely"}, {"attributes", "an object of texts", "attributes", `{"a":1}`},
		{"body", "over the limit", "body", strings.Repeat("x", 65<<10)},
	} {
		form := []string{"queue", "reports", "schedule", "nightly", "cron", "0 3 * * *", "body", "typed <body>"}
		a := b.ask(append(form, c.name, c.value)...)
		b.expect(a, 200, `id="p-`+c.field+`"`, `aria-describedby="p-`+c.field+`"`, "Nothing was changed", `value="`+map[bool]string{true: c.value, false: "0 3 * * *"}[c.name == "cron"]+`"`)
		_, problem, _ := strings.Cut(a.body, `id="p-`+c.field+`"`)
		problem, _, _ = strings.Cut(problem, "</p>")
		if !strings.Contains(html.UnescapeString(problem), c.says) {
			t.Errorf("%s %q: %s lacks %q", c.name, c.value, problem, c.says)
		}
		if c.name != "body" {
			b.expect(a, 200, "typed &lt;body&gt;")
		}
	}
	b.expect(b.ask("queue", "reports", "schedule", "s", "every", "1h", "catch_up", "some"), 200, "want none, one or all")
	raw := string([]byte{0, 1, 255, '\r'})
	confirmation := b.ask("queue", "reports", "schedule", "raw", "every", "1h", "encoding", "base64", "body", base64.StdEncoding.EncodeToString([]byte(raw)))
	b.expect(b.submit(confirmation), http.StatusSeeOther)
	if s, err := d.caller("").Schedule(t.Context(), "reports", "raw"); err != nil || string(s.Schedule.Body) != raw {
		t.Errorf("%q, %v", s.Schedule.Body, err)
	}
	b.expect(b.get("edit-schedule?queue=reports&schedule=raw"), 200, `<option value="base64" selected>`, "AAH/DQ==")
}

// TestScheduleFormNeedsAdminAndSend is CON-1.
func TestScheduleFormNeedsAdminAndSend(t *testing.T) {
	d := open(t)
	d.send("", "reports", "x")
	exact, err := capability.ParsePattern("reports")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*browser{
		"without send": d.logIn(d.mint("", []capability.Operation{capability.OpAdmin}, capability.AnyQueue())),
		"read only":    d.logIn(d.mint("", nil), "read_only", "yes"),
	} {
		t.Run(name, func(t *testing.T) {
			b.lacks(b.get("schedules"), "edit-schedule")
			b.expect(b.get("edit-schedule?queue=reports"), http.StatusForbidden)
			b.expect(b.ask("queue", "reports", "schedule", "s", "every", "1h"), http.StatusForbidden)
		})
	}
	b := d.logIn(d.mint("", []capability.Operation{capability.OpAdmin, capability.OpSend}, exact))
	b.expect(b.get("schedules"), 200, "edit-schedule")
	b.expect(b.ask("queue", "reports", "schedule", "s", "every", "1h"), 200, "Store schedule s")
	b.expect(b.ask("queue", "other", "schedule", "s", "every", "1h"), http.StatusForbidden)
}
