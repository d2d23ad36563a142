package console_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// restart is CON-2: a daemon that starts again knows no session. The page says that it is offline, that the session has
// ended, and is back after signing in.
func restart(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	d.send("", "orders", "first body")
	p := d.tabOf(t, shared)
	token := d.mint("", nil).Reveal()
	p.signIn(token)
	const page = "queue?name=orders&state=ready&text=body&limit=200"
	p.show(page)
	d.renew(console.Options{}) // ends the stream, as a drain does
	p.stop()
	p.WaitFor(`document.getElementById("offline").textContent.includes("The daemon does not answer")`)
	p.reads("first body")
	p.start(d)
	p.WaitFor(`document.getElementById("offline").textContent.includes("The session has ended")`)
	p.Click("#offline a", "Sign in again")
	p.at("Sign in")
	p.WaitFor(`document.activeElement.id === "token"`)
	p.Paste(token)
	p.Type("\n")
	p.at("orders")
	var address string
	if p.Eval("location.href", &address); !sameAddress(t, address, p.base+page) {
		t.Errorf("at %s after signing in, want %s", address, p.base+page)
	}
	d.send("", "orders", "second body")
	p.reads("second body") // live again
	for _, problem := range p.Problems() {
		if !strings.Contains(problem, "net::ERR_") && !strings.Contains(problem, "status of 401") {
			t.Error(problem)
		}
	}
}

// hideTab is CON-2: a page that is not seen asks for nothing.
func hideTab(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	d.send("", "orders", "first body")
	p := d.tabOf(t, shared)
	p.signIn(d.mint("", nil).Reveal())
	p.show("queue?name=orders")
	streams := func(want int64) func() bool {
		return func() bool { return int64(d.console.Shares()[1].Used) == want }
	}
	proctest.Eventually(t, time.Minute, "the page has a stream", streams(1))
	p.Hide(true)
	proctest.Eventually(t, time.Minute, "the hidden page has no stream", streams(0))
	d.send("", "orders", "second body")
	p.Hide(false)
	p.reads("second body")
	proctest.Eventually(t, time.Minute, "the page has a stream again", streams(1))
	p.sound("hidden")
}

// otherZone is CON-2: times are those of the reader, and exact in UTC for the pointer.
func otherZone(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	id := d.send("", "orders", "x")
	p := d.tabOf(t, shared)
	p.SetZone("Asia/Kathmandu") // 5:45 before UTC
	p.signIn(d.mint("", nil).Reveal())
	p.show("message?queue=orders&id=" + id)
	trace, err := d.caller("").Trace(t.Context(), "orders", id)
	if err != nil {
		t.Fatal(err)
	}
	at := trace.Message.EnqueuedAt.UTC()
	var shown []struct{ Text, Title string }
	p.Eval(`[...document.querySelectorAll("#facts time[data-local], #trace time[data-local]")].map((e) => ({ text: e.textContent, title: e.title }))`, &shown)
	local := at.In(time.FixedZone("", (5*60+45)*60)).Format("Jan 2, 2006, 3:04:05")
	for _, s := range shown {
		if !strings.HasPrefix(s.Text, local) || s.Title != at.Format("2006-01-02 15:04:05.000 UTC") && !strings.HasPrefix(s.Title, at.Format("2006-01-02 15:04:05")) {
			t.Errorf("%q with the title %q, want %s and %v", s.Text, s.Title, local, at)
		}
	}
	if len(shown) < 2 {
		t.Errorf("%d times", len(shown))
	}
	for page, least := range map[string]int{"access": 3, "health": 1} { // times within sentences
		p.show(page)
		var found struct{ All, Other int }
		p.Eval(`(() => {
			const all = [...document.querySelectorAll("main time[data-local]")];
			const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", timeZone: "Asia/Kathmandu" });
			return { all: all.length, other: all.filter((e) => e.textContent !== zone.format(new Date(e.dateTime)) || !e.title.endsWith(" UTC")).length };
		})()`, &found)
		if found.All < least || found.Other > 0 {
			t.Errorf("%s: %d of %d times are in another zone; want %d at least", page, found.Other, found.All, least)
		}
	}
	p.sound("zone")
}

// frame is CON-1: a page that frames the console shows nothing of it, also with the cookie of a session.
func frame(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	p := d.tabOf(t, shared)
	p.signIn(d.mint("", nil).Reveal())
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>win</title><iframe src=%q width=800 height=600></iframe>`, p.base+r.URL.Query().Get("page"))
	}))
	t.Cleanup(evil.Close)
	for _, page := range []string{"", "login", "confirm"} {
		p.Open(evil.URL + "/?page=" + page)
		if text := p.FrameText(); strings.Contains(text, "Mailbox") {
			t.Errorf("a frame shows %q: %.300s", page, text)
		}
		refused := strings.Join(p.Problems(), "\n")
		if !strings.Contains(refused, "frame-ancestors") {
			t.Errorf("%q: the browser says %q", page, refused)
		}
	}
}

// readLog is CON-1: neither the log nor an address has a token or a code.
func readLog(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	var log lockedLog
	d.renew(console.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	p := d.tabOf(t, shared)
	token, other := d.mint("", nil).Reveal(), d.mint("", nil).Reveal()
	code := d.code(d.mint("", nil))
	p.Open(p.base + "login#" + code)
	p.at("Overview")
	p.follow("Sign out")
	p.at("Sign in")
	p.signIn(token)
	p.show("access")
	p.Click("#f-token", "")
	p.Paste(other)
	p.follow("Revoke…")
	p.at("Revoke a token")
	d.broker.SetState(broker.StateStopped) // what fails is logged
	p.Click("main form button", "Revoke 1 token")
	p.WaitFor(`document.readyState === "complete" && document.querySelector(".notice")`)
	p.refused("queues", "503 Service Unavailable")
	lines := log.String()
	for _, secret := range []string{token, other, code} {
		if strings.Contains(lines, secret) {
			t.Errorf("the log contains %q: %s", secret, lines)
		}
	}
	if !strings.Contains(lines, "console.failed") {
		t.Errorf("the log has no line of the console: %s", lines)
	}
	p.hides(token, other)
	for _, address := range p.Addresses() {
		if at := strings.Index(address, code); at >= 0 && !strings.Contains(address, "#") { // the fragment that the person opened
			t.Errorf("address %q contains the code", address)
		}
	}
}

// lockedLog is a log that handlers write at once.
type lockedLog struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// sameAddress reports whether two addresses name the same page, in whatever order their parameters are.
func sameAddress(t *testing.T, a, b string) bool {
	t.Helper()
	first, err := url.Parse(a)
	second, err2 := url.Parse(b)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return first.Path == second.Path && first.Query().Encode() == second.Query().Encode()
}
