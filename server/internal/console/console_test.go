package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// pages are all that a person can open, of queue orders.
func pages(id string) []string {
	return []string{
		"", "queues", "queues?q=or", "workers", "queue?name=orders", "queue?name=orders&state=dead", "queue?name=orders&order=newest", "groups?queue=orders", "queue?name=orders&id=" + id, "message?queue=orders&id=" + id,
		"dead", "dead?queue=orders", "jobs", "jobs?queue=orders", "schedules", "schedule?queue=orders&schedule=nightly", "requests", "access", "health",
	}
}

// TestEveryPageIsServedSecurely is CON-1.
func TestEveryPageIsServedSecurely(t *testing.T) {
	d := open(t)
	id := d.deadLetter("", "orders", `{"n":12345678901234567890}`, "boom 1")
	d.schedule("", "orders", "nightly")
	b := d.logIn(d.mint("", nil))
	for _, page := range append(pages(id), "nowhere", "queue?name=missing", "message?queue=orders&id=x") {
		a := b.get(page)
		if want := http.StatusOK; a.status != want && !strings.Contains(page, "nowhere") && !strings.Contains(page, "missing") && !strings.Contains(page, "id=x") {
			t.Errorf("%s: status %d: %s", page, a.status, main(a.body))
		}
		policy := a.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", page, policy)
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin"} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", page, name, got, want)
			}
		}
		for _, inline := range []string{"<style", " style=", "javascript:", " onclick=", " onload="} {
			if strings.Contains(a.body, inline) {
				t.Errorf("%s contains %q", page, inline)
			}
		}
		if len(a.body) > 1<<20 {
			t.Errorf("%s has %d bytes", page, len(a.body))
		}
	}
	b.expect(b.get("message?queue=orders&id="+id), 200, "12345678901234567890", "dead-lettered", "boom 1")
}

// TestStrangerIsSentToLogin is CON-1.
func TestStrangerIsSentToLogin(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	b := d.browser()
	for _, page := range pages("x") {
		a := b.get(page)
		if a.status != http.StatusSeeOther || !strings.HasPrefix(a.header.Get("Location"), "login") || strings.Contains(a.body, "orders") {
			t.Errorf("%s: %d to %q: %s", page, a.status, a.header.Get("Location"), a.body)
		}
	}
	b.expect(b.get("live?page=queues"), http.StatusUnauthorized)
	b.expect(b.post("do", "do", "purge", "queue", "orders", "touched", "1"), http.StatusSeeOther)
	b.expect(b.get("login"), 200, "A token is the login")
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "1 ready") {
		t.Error(got)
	}
}

// TestLoginKeepsTokenOutOfPagesAndAddresses is CON-1.
func TestLoginKeepsTokenOutOfPagesAndAddresses(t *testing.T) {
	d := open(t)
	token := d.mint("", nil)
	b := d.browser()
	a := b.post("login", "token", token.Reveal(), "next", "queues?q=a")
	b.expect(a, http.StatusSeeOther)
	if got := a.header.Get("Location"); got != "./queues?q=a" {
		t.Errorf("sent to %q", got)
	}
	cookie := a.header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Lax"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("cookie %q lacks %s", cookie, want)
		}
	}
	if strings.Contains(cookie, "Path=") || strings.Contains(cookie, token.Reveal()) {
		t.Errorf("cookie %q has a path or the token", cookie)
	}
	d.send("", "orders", "x")
	for _, page := range pages("x") {
		b.lacks(b.get(page), token.Reveal())
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://host"+prefix+"login", strings.NewReader("token="+token.Reveal()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if got := d.browser().do(r).header.Get("Set-Cookie"); !strings.Contains(got, "Secure") {
		t.Errorf("cookie over TLS is %q", got)
	}
}

func TestLoginRefusesWhatIsNoToken(t *testing.T) {
	d := open(t)
	other := open(t)
	expired, err := d.ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	revoked := d.mint("", nil)
	if err := d.caller("").RevokeToken(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing": "", "text": "hello", "another daemon's": other.mint("", nil).Reveal(), "expired": expired.Reveal(), "revoked": revoked.Reveal(), "code": "code-AAAA",
	} {
		b := d.browser()
		a := b.post("login", "token", text)
		if a.status < 400 || b.cookie != "" || text != "" && strings.Contains(a.body, text) {
			t.Errorf("%s: status %d, cookie %q: %s", name, a.status, b.cookie, main(a.body))
		}
	}
}

// TestLoginDoesNotAcceptCookieOfOthers is CON-1.
func TestLoginDoesNotAcceptCookieOfOthers(t *testing.T) {
	d := open(t)
	b := d.browser()
	b.cookie = "chosen-by-an-attacker"
	b.post("login", "token", d.mint("", nil).Reveal())
	if b.cookie == "chosen-by-an-attacker" || b.cookie == "" {
		t.Fatalf("cookie %q", b.cookie)
	}
	first := b.cookie
	b.post("login", "token", d.mint("", nil).Reveal())
	if b.cookie == first {
		t.Error("a second login kept the session")
	}
	b.cookie = first
	b.expect(b.get("queues"), http.StatusSeeOther)
}

func TestNextLeadsToPagesOfConsoleOnly(t *testing.T) {
	d := open(t)
	for next, want := range map[string]string{
		"queues": "./queues", "queue?name=a&state=dead": "./queue?name=a&state=dead", "": "./",
		"https://evil.example/": "./", "//evil.example/queues": "./", "/queues": "./", "javascript:alert(1)": "./", "logout": "./", "../queues": "./", `\\evil.example`: "./",
	} {
		a := d.browser().post("login", "token", d.mint("", nil).Reveal(), "next", next)
		if got := a.header.Get("Location"); got != want {
			t.Errorf("next %q leads to %q, want %q", next, got, want)
		}
	}
}

func TestOneTimeCodeWorksOnceWithinMinute(t *testing.T) {
	d := open(t)
	code := func(read string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prefix+"code"+read, nil)
		r.Header.Set("Authorization", "Bearer "+d.mint("", nil).Reveal())
		a := d.browser().do(r)
		_, after, ok := strings.Cut(a.body, `"one_time_code":"`)
		if a.status != 200 || !ok {
			t.Fatalf("got %d %s", a.status, a.body)
		}
		return after[:strings.IndexByte(after, '"')]
	}
	once := code("")
	b := d.browser()
	b.expect(b.post("login", "token", once), http.StatusSeeOther)
	b.expect(b.get("access"), 200)
	b.expect(b.get("login"), 200, "A token is the login") // its script posts the code of a second login
	again := d.browser()
	again.expect(again.post("login", "token", once), http.StatusUnauthorized, "used or is older")
	reader := d.browser()
	reader.post("login", "token", code("?read_only=1"))
	reader.expect(reader.get("access"), 200, "is read-only")
	refused := d.browser()
	refused.expect(refused.post("code"), http.StatusUnauthorized)
}

// TestChangesNeedCSRFTokenOfSession is CON-1.
func TestChangesNeedCSRFTokenOfSession(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	b, other := d.logIn(d.mint("", nil)), d.logIn(d.mint("", nil))
	_, csrf, _ := strings.Cut(other.get("confirm?do=purge&queue=orders").body, `name="csrf" value="`)
	csrf = csrf[:strings.IndexByte(csrf, '"')]
	for _, sent := range []string{"", "guess", csrf} {
		b.expect(b.post("do", "do", "purge", "queue", "orders", "touched", "1", "csrf", sent), http.StatusForbidden)
	}
	b.expect(b.get("do?do=purge&queue=orders&touched=1&csrf="+csrf), http.StatusNotFound)
	b.expect(b.post("logout"), http.StatusForbidden)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prefix+"login", strings.NewReader("token="+d.mint("", nil).Reveal()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if a := d.browser().do(r); a.status != http.StatusForbidden {
		t.Errorf("a login from another site: %d", a.status)
	}
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "1 ready") {
		t.Error(got)
	}
}

// TestLookingChangesNothing is CON-1.
func TestLookingChangesNothing(t *testing.T) {
	d := open(t)
	id := d.deadLetter("", "orders", "x", "boom")
	d.send("", "orders", "y")
	d.schedule("", "orders", "nightly")
	before := d.stats("", "orders")
	records, _, _ := d.caller("").Audit(t.Context())
	b := d.logIn(d.mint("", nil))
	for _, page := range append(pages(id), "confirm?do=purge&queue=orders", "confirm?do=redrive&queue=orders", "confirm?do=discard&queue=orders&id="+id, "confirm?do=pause&queue=orders") {
		b.expect(b.get(page), 200)
	}
	after, _, _ := d.caller("").Audit(t.Context())
	if got := d.stats("", "orders"); got != before || len(after) != len(records) {
		t.Errorf("%s before, %s after, %d changes", before, got, len(after)-len(records))
	}
}

// hostile is text that a sender controls and that would run if it were not escaped.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>`

// TestStoredScriptsStayText is CON-1.
func TestStoredScriptsStayText(t *testing.T) {
	d := open(t)
	attributed := func(out *driver.Outgoing) {
		out.Attributes = map[string]string{hostile: hostile}
		out.Group, out.ReplyTo, out.CorrelationID, out.DedupKey = hostile, hostile, hostile, hostile
	}
	live := d.send("", "orders", hostile, attributed)
	dead := d.deadLetter("", "dying", hostile, hostile)
	d.work("", "orders", hostile, 1)
	if _, err := d.caller("").Stats(t.Context(), "dying"); err != nil {
		t.Fatal(err)
	}
	b := d.logIn(d.mint("", nil))
	for _, page := range []string{
		"", "queues", "queues?q=" + hostile, "queue?name=orders", "queue?name=orders&state=" + hostile, "queue?name=orders&attribute=" + hostile, "queue?name=" + hostile,
		"message?queue=orders&id=" + live, "message?queue=dying&id=" + dead, "message?queue=orders&id=" + hostile, "dead?queue=dying", "dead?queue=dying&cause=" + hostile,
		"confirm?do=remove&queue=orders&id=" + live, "confirm?do=redrive&queue=dying", "confirm?do=" + hostile, "schedule?queue=orders&schedule=" + hostile, "access", "workers", "workers?q=" + hostile,
	} {
		a := b.get(strings.NewReplacer(`"`, "%22", "<", "%3C", ">", "%3E", " ", "%20").Replace(page))
		if strings.Contains(a.body, "<script>alert") || strings.Contains(a.body, "<img src=x") {
			t.Errorf("%s runs what a sender wrote: %s", page, main(a.body))
		}
	}
	b.expect(b.get("message?queue=orders&id="+live), 200, "&lt;script&gt;alert(1)")
}

func TestAssetsAreSmallAndCached(t *testing.T) {
	d := open(t)
	b := d.browser()
	body := b.get("login").body
	size := 0
	for _, attribute := range []string{`stylesheet" href="`, `<script src="`} {
		_, name, ok := strings.Cut(body, attribute)
		if !ok {
			t.Fatalf("no %s in %s", attribute, body)
		}
		a := b.get(name[:strings.IndexByte(name, '"')])
		b.expect(a, 200)
		if !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s is not cached: %v", name, a.header)
		}
		size += len(a.body)
	}
	if size > 40<<10 {
		t.Errorf("script and style have %d bytes, at most 40 KiB are allowed", size)
	}
}

func TestSessionsAreBoundedByTenant(t *testing.T) {
	d := open(t)
	token := d.mint("a", nil)
	refused := 0
	for range 1100 {
		b := d.browser()
		if a := b.post("login", "token", token.Reveal()); a.status == http.StatusTooManyRequests && strings.Contains(a.body, "console sessions") {
			refused++
		}
	}
	if refused == 0 {
		t.Error("1,100 sessions of one token were begun")
	}
	d.logIn(d.mint("b", nil))
}

// TestRevokedTokenEndsSession is CON-1.
func TestRevokedTokenEndsSession(t *testing.T) {
	d := open(t)
	d.send("", "orders", "secret body")
	token := d.mint("", nil)
	b := d.logIn(token)
	if err := d.caller("").RevokeToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	a := b.get("queue?name=orders")
	if a.status < 400 {
		t.Errorf("status %d", a.status)
	}
	b.lacks(a, "secret body")
	b.expect(b.get("queues"), http.StatusSeeOther)
}

var _ http.Handler = (*console.Handler)(nil)
