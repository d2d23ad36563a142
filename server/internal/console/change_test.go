package console_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// change confirms a change, and expects that the next page says what was done.
func (b *browser) change(confirmation, done string, pairs ...string) {
	b.t.Helper()
	a := b.submit(b.get("confirm?"+confirmation), pairs...)
	b.expect(a, http.StatusSeeOther)
	b.expect(b.get(strings.TrimPrefix(a.header.Get("Location"), "./")), 200, done)
}

// TestQueueIsPausedResumedAndPurged is CON-1.
func TestQueueIsPausedResumedAndPurged(t *testing.T) {
	d := open(t)
	for range 3 {
		d.send("", "orders", "x")
	}
	b := d.logIn(d.mint("", nil))
	b.change("do=pause&queue=orders", "Paused orders")
	b.expect(b.get("queue?name=orders"), 200, "Resume")
	b.change("do=resume&queue=orders", "Resumed orders")
	b.expect(b.get("confirm?do=purge&queue=orders"), 200, "removes 3 messages for good", "Remove 3 messages")
	b.change("do=purge&queue=orders", "Removed 3 messages")
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "0 ready") {
		t.Error(got)
	}
	records, _, err := d.caller("").Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var operations []string
	for _, r := range records {
		operations = append(operations, r.Operation)
	}
	if got := strings.Join(operations, ", "); got != "pause, resume, purge" {
		t.Errorf("audited: %s", got)
	}
}

// TestPurgeTouchesNoMoreThanConfirmed is CON-1.
func TestPurgeTouchesNoMoreThanConfirmed(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	b := d.logIn(d.mint("", nil))
	seen := b.get("confirm?do=purge&queue=orders")
	d.send("", "orders", "y")
	b.submit(seen)
	b.expect(b.get("queue?name=orders"), 200, "2 messages now")
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "2 ready") {
		t.Error(got)
	}
}

// TestDeadLettersAreGroupedByCause is CON-2.
func TestDeadLettersAreGroupedByCause(t *testing.T) {
	d := open(t)
	for i := range 3 {
		d.deadLetter("", "orders", "x", fmt.Sprintf("dial 10.0.0.%d:5432: refused after %d ms", i, 10*i))
	}
	d.deadLetter("", "orders", "x", `unknown customer "Ada"`)
	last := d.deadLetter("", "orders", "x", `unknown customer "Bob"`)
	b := d.logIn(d.mint("", nil))
	a := b.get("dead?queue=orders")
	b.expect(a, 200, "5 dead letters in 2 causes", "unknown customer …", "dial …")
	_, id, _ := strings.Cut(a.body, "cause=")
	id = id[:12]
	b.expect(b.get("confirm?do=redrive&queue=orders&cause="+id), 200, "3 dead letters")
	b.finish("do=redrive&queue=orders&cause="+id, "done", "3 messages", "3 of 5")
	if got, want := d.stats("", "orders"), "3 ready, 0 delayed, 0 in flight, 2 dead, paused false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.change("do=discard&queue=orders&id="+last, "1 dead letter of orders discarded")
	b.finish("do=discard&queue=orders", "done", "1 message")
	b.expect(b.get("dead?queue=orders"), 200, "no dead letters")
	b.expect(b.get("dead?queue=orders&cause="+id), 200, "None left")
}

// TestRedriveTouchesNoMoreThanConfirmed is CON-1.
func TestRedriveTouchesNoMoreThanConfirmed(t *testing.T) {
	d := open(t)
	d.deadLetter("", "orders", "x", "boom")
	b := d.logIn(d.mint("", nil))
	seen := b.get("confirm?do=redrive&queue=orders")
	d.deadLetter("", "orders", "y", "boom")
	b.await(b.submit(seen))
	if got, want := d.stats("", "orders"), "1 ready, 0 delayed, 0 in flight, 1 dead, paused false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDiscardTouchesOnlyWhatWasSeen is CON-1.
func TestDiscardTouchesOnlyWhatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		seen := d.deadLetter("", "orders", "seen", "boom")
		b := d.logIn(d.mint("", nil))
		confirmation := b.get("confirm?do=discard&queue=orders")
		if _, err := d.caller("").Discard(t.Context(), "orders", []string{seen}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.deadLetter("", "orders", "died since", "another cause")
		b.expect(b.await(b.submit(confirmation)), 200, "done", "0 messages")
		b.expect(b.get("dead?queue=orders"), 200, "another cause")
	})
}

func TestFormSentTwiceChangesOnce(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	d.schedule("", "orders", "nightly")
	b := d.logIn(d.mint("", nil))
	at := "do=run-schedule&queue=orders&schedule=nightly"
	confirmation := b.get("confirm?" + at)
	b.submit(confirmation)
	b.expect(b.submit(confirmation), http.StatusSeeOther)
	b.expect(b.get("queues"), 200, "Sent message")
	b.submit(confirmation)
	b.expect(b.get("queues"), 200, "sent twice")
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "2 ready") {
		t.Errorf("%s, want one message and one run", got)
	}
	b.change(at, "Sent message")
}

func TestSessionRemembersOnlyShortFormIDs(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	b := d.logIn(d.mint("", nil))
	b.expect(b.submit(b.get("confirm?do=pause&queue=orders"), "form", strings.Repeat("x", 60_000)), http.StatusBadRequest)
}

func TestChangeGoesOnWhenBrowserHasGone(t *testing.T) {
	d := open(t)
	d.deadLetter("", "orders", "x", "boom")
	b := d.logIn(d.mint("", nil))
	gone, leave := context.WithCancel(t.Context())
	leave()
	b.await(b.submitIn(gone, b.get("confirm?do=redrive&queue=orders")))
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "1 ready") {
		t.Error(got)
	}
}

func TestListsHaveBounds(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	word := func(i int) string { // without digits, which causes leave out
		return strings.Map(func(r rune) rune { return r - '0' + 'm' }, fmt.Sprint(i))
	}
	const many = 520
	for i := range many {
		d.deadLetter("", "dying", "x", strings.Repeat("<", 100)+word(i))
		d.schedule("", "orders", word(i))
	}
	b := d.logIn(d.mint("", nil))
	for page, most := range map[string]int{"dead?queue=dying": 200, "schedules": 500} {
		a := b.get(page)
		b.expect(a, 200, fmt.Sprintf(" %d ", most))
		if rows := strings.Count(a.body, "<tr>") - 1; rows != most {
			t.Errorf("%s has %d rows, want %d", page, rows, most)
		}
	}
}

func TestMessageIsEdited(t *testing.T) {
	d := open(t)
	delayed := d.send("", "orders", "x", func(out *driver.Outgoing) { out.Delay = time.Hour })
	b := d.logIn(d.mint("", nil))
	at := "&queue=orders&id=" + delayed
	b.expect(b.get("message?queue=orders&id="+delayed), 200, "do=ready", "do=due", "do=remove")
	b.change("do=ready"+at, "The message is ready")
	tomorrow := time.Now().Add(24 * time.Hour).UTC()
	b.change("do=due"+at, `The message is due at <time datetime="`+tomorrow.Format("2006-01-02"), "at", tomorrow.Format(time.DateTime))
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "0 ready, 1 delayed") {
		t.Error(got)
	}
	b.change("do=priority"+at, "The priority of the message is 9.", "priority", "9")
	b.expect(b.get("message?queue=orders&id="+delayed), 200, "<dt>priority</dt><dd>9</dd>")
	for _, wrong := range []string{"10", "-1", "high"} {
		b.submit(b.get("confirm?do=priority"+at), "priority", wrong)
		b.expect(b.get("message?queue=orders&id="+delayed), 200, "0", "9", "<dt>priority</dt><dd>9</dd>")
	}
	b.change("do=remove"+at, "Removed message "+delayed)
	b.expect(b.get("message?queue=orders&id="+delayed), 200, "not in the queue any more", "removed")
}

func TestWrongDueTimeIsExplained(t *testing.T) {
	d := open(t)
	id := d.send("", "orders", "x")
	b := d.logIn(d.mint("", nil))
	b.submit(b.get("confirm?do=due&queue=orders&id="+id), "at", "tomorrow")
	b.expect(b.get("message?queue=orders&id="+id), 200, "want a time in UTC")
}

// TestScheduleIsPausedResumedRunAndRemoved is CON-2.
func TestScheduleIsPausedResumedRunAndRemoved(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	d.schedule("", "orders", "nightly")
	b := d.logIn(d.mint("", nil))
	b.expect(b.get("schedules"), 200, "nightly", "0 3 * * *")
	at := "&queue=orders&schedule=nightly"
	b.change("do=pause-schedule"+at, "Paused nightly")
	b.expect(b.get("schedules"), 200, "paused")
	b.change("do=resume-schedule"+at, "Resumed nightly")
	b.change("do=run-schedule"+at, "Sent message")
	b.expect(b.get("schedule?"+at), 200, "by hand")
	b.change("do=remove-schedule"+at, "Removed nightly")
	b.expect(b.get("schedules"), 200, "No schedule yet")
}

func TestTokenIsRevoked(t *testing.T) {
	d := open(t)
	token := d.mint("", nil)
	holder, b := d.logIn(token), d.logIn(d.mint("", nil))
	_, csrf, _ := strings.Cut(b.get("access").body, `name="csrf" value="`)
	csrf = csrf[:strings.IndexByte(csrf, '"')]
	confirmation := b.post("confirm", "do", "revoke", "token", token.Reveal(), "csrf", csrf)
	b.expect(confirmation, 200, "family of the token", "refused from now on", token.ID().String())
	b.expect(b.post("confirm", "do", "revoke", "token", token.Reveal()), http.StatusForbidden)
	b.expect(b.submit(confirmation), http.StatusSeeOther)
	b.expect(b.get("access"), 200, "Revoked token", "revoke")
	if a := holder.get("queues"); a.status < 400 {
		t.Errorf("the revoked token got %d", a.status)
	}
}

// A minted token is shown once, does what its words say, and ends with its parent.
func TestTokenIsMinted(t *testing.T) {
	d := open(t)
	d.send("", "orders.eu", "x")
	parent := d.mint("", nil)
	b := d.logIn(parent)
	access := b.get("access")
	b.expect(access, 200, "Mint a token", `value="peek"`)
	_, csrf, _ := strings.Cut(access.body, `name="csrf" value="`)
	csrf = csrf[:strings.IndexByte(csrf, '"')]
	form := []string{"do", "mint", "operation", "peek", "operation", "stats", "queues", "orders.*, other", "lifetime", "1h", "csrf", csrf}
	confirmation := b.post("confirm", form...)
	b.expect(confirmation, 200, "Mint 1 token", "may peek,stats", "on queues orders.*,other")
	b.expect(b.submit(confirmation), http.StatusSeeOther)
	shown := b.get("access")
	b.expect(shown, 200, "Minted token", "mint")
	_, text, _ := strings.Cut(shown.body, `aria-label="Token">`)
	text, _, _ = strings.Cut(text, "<")
	token, err := capability.Parse(text)
	if err != nil {
		t.Fatalf("the page shows %q: %v", text, err)
	}
	b.lacks(b.get("access"), text)
	for name, test := range map[string]struct {
		fields []string
		want   string
	}{
		"no operation":      {[]string{"do", "mint", "queues", "*", "lifetime", "1h", "csrf", csrf}, "mark at least one"},
		"no queue":          {[]string{"do", "mint", "operation", "peek", "queues", " ", "lifetime", "1h", "csrf", csrf}, "queues"},
		"no lifetime":       {[]string{"do", "mint", "operation", "peek", "queues", "*", "lifetime", "-1h", "csrf", csrf}, "lifetime"},
		"unknown operation": {[]string{"do", "mint", "operation", "fly", "queues", "*", "lifetime", "1h", "csrf", csrf}, "want one of"},
	} {
		if a := b.post("confirm", test.fields...); a.status != http.StatusBadRequest || !strings.Contains(a.body, test.want) {
			t.Errorf("%s: status %d\n%s", name, a.status, a.body)
		}
	}
	holder := d.logIn(token)
	holder.expect(holder.get("queue?name=orders.eu"), 200)
	holder.expect(holder.get("queue?name=invoices"), http.StatusForbidden)
	holder.lacks(holder.get("access"), "Mint a token")
	if err := d.caller("").RevokeToken(t.Context(), parent); err != nil {
		t.Fatal(err)
	}
	if a := holder.get("queues"); a.status < 400 {
		t.Errorf("a token of a revoked one got %d", a.status)
	}
}

func TestBodiesAreShownAsTheyAre(t *testing.T) {
	d := open(t)
	b := d.logIn(d.mint("", nil))
	for _, test := range []struct{ body, want string }{
		{`{"id":12345678901234567890.10,"b":1,"a":2}`, "&#34;id&#34;: 12345678901234567890.10,\n  &#34;b&#34;: 1,\n  &#34;a&#34;: 2"},
		{"plain text", "Text, 10 bytes"},
		{"\x00\x01\xff", "00000000  00 01 ff"},
		{"", "The body is empty"},
		{strings.Repeat("long ", 20_000), "the first 65,536 are shown"},
	} {
		id := d.send("", "orders", test.body)
		b.expect(b.get("message?queue=orders&id="+id), 200, test.want)
	}
}

func TestCommandsQuoteWhatTheyContain(t *testing.T) {
	d := open(t)
	const queue = "it's;rm"
	id := d.send("", queue, "x")
	b := d.logIn(d.mint("", nil))
	page := b.get("message?queue=it%27s%3Brm&id=" + id)
	b.expect(page, 200, html.EscapeString(`--queue 'it'\''s;rm'`), html.EscapeString(`"topic":"it'\''s;rm"`))
}

func TestQueuesArePagedAndFiltered(t *testing.T) {
	d := open(t)
	for i := range 60 {
		d.send("", fmt.Sprintf("queue-%02d", i), "x")
	}
	b := d.logIn(d.mint("", nil))
	first := b.get("queues")
	b.expect(first, 200, "queue-00", "queue-49", "Page 1 of 2, 60 queues")
	b.lacks(first, "queue-50")
	b.expect(b.get("queues?page=2"), 200, "queue-59")
	found := b.get("queues?q=UE-07")
	b.expect(found, 200, "queue-07")
	b.lacks(found, "queue-08")
	b.expect(b.get("queues?q=none"), 200, "None of 60 queues")
	for _, page := range []string{"queues?page=-1", "queues?page=999", "queues?page=x"} {
		b.expect(b.get(page), 200, "queue-")
	}
}

func TestMessagesAreFiltered(t *testing.T) {
	d := open(t)
	red := d.send("", "orders", "x", func(out *driver.Outgoing) { out.Attributes = map[string]string{"colour": "red"} })
	blue := d.send("", "orders", "x needle y", func(out *driver.Outgoing) {
		out.Delay, out.Group, out.Priority = time.Hour, "c-1", 3
	})
	b := d.logIn(d.mint("", nil))
	for filter, want := range map[string][2]string{
		"&state=ready": {red, blue}, "&state=delayed": {blue, red}, "&id=" + blue: {blue, red}, "&attribute=colour%3Dred": {red, blue},
		"&text=needle": {blue, red}, "&group=c-1": {blue, red}, "&priority=3": {blue, red}, "&priority=0": {red, blue}, "&text=needle&id=" + blue: {blue, red},
	} {
		a := b.get("queue?name=orders" + filter)
		b.expect(a, 200, want[0])
		_, list, _ := strings.Cut(a.body, `<tbody>`)
		if strings.Contains(list, want[1]) {
			t.Errorf("%s shows %s", filter, want[1])
		}
	}
	b.expect(b.get("queue?name=orders&older=soon"), 200, "want a duration")
	b.expect(b.get("queue?name=orders&state=lost"), 200, "want ready")
	b.expect(b.get("queue?name=orders&priority=11"), 200, "want a number from 0 to")
	b.expect(b.get("queue?name=orders&reason=bad"), 200, "Reason: want")
	for _, filter := range []string{"older=10h", "text=Needle", "group=c-2", "priority=1", "text=needle&id=" + red, "reason=fatal"} {
		b.expect(b.get("queue?name=orders&"+filter), 200, "No message matches")
	}
}
