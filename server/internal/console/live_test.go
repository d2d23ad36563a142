package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// at waits until a page with this title is complete.
func (p *tab) at(title string) {
	p.t.Helper()
	p.WaitFor(`document.readyState === "complete" && document.querySelector("h1")?.textContent === "` + title + `"`)
}

// TestPageFollowsQueueUntilPaused is CON-2.
func TestPageFollowsQueueUntilPaused(t *testing.T) {
	d := open(t)
	d.send("", "orders", "first")
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.show("queue?name=orders")
	d.send("", "orders", "second body")
	p.WaitFor(`document.getElementById("messages").textContent.includes("second body")`)
	p.WaitFor(`document.getElementById("states").textContent.includes("ready2")`)
	p.Type("p")
	p.WaitFor(`document.getElementById("pause").textContent === "Paused"`)
	d.send("", "orders", "third body")
	p.Type("p")
	p.WaitFor(`document.getElementById("messages").textContent.includes("third body")`)
	p.sound("queue")
}

func TestFocusStaysWhileRowsAreReplaced(t *testing.T) {
	d := open(t)
	first := d.send("", "orders", "first")
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.show("queue?name=orders")
	p.Eval(`document.querySelector("#messages a").focus()`, nil)
	d.send("", "orders", "second body")
	p.WaitFor(`document.getElementById("messages").textContent.includes("second body")`)
	p.WaitFor(`document.activeElement.textContent === "` + first + `"`)
}

// TestConsoleIsUsedByKeyboard is CON-2.
func TestConsoleIsUsedByKeyboard(t *testing.T) {
	d := open(t)
	d.shop()
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.Type("gq")
	p.at("Queues")
	p.Type("/")
	p.WaitFor(`document.activeElement.id === "f-q"`)
	p.Paste("thumb")
	p.Type("\n")
	p.WaitFor(`location.search === "?q=thumb" && document.readyState === "complete" && document.querySelectorAll("tbody tr").length === 1`)
	p.Type("?")
	p.WaitFor(`document.getElementById("help").open`)
	p.Type("\n") // the button Close has the focus
	p.WaitFor(`!document.getElementById("help").open`)
	p.Type("gd")
	p.at("Dead letters")
	p.sound("dead")
}

// TestChangeIsConfirmedInBrowser is CON-1.
func TestChangeIsConfirmedInBrowser(t *testing.T) {
	d := open(t)
	d.deadLetter("", "orders", "x", "boom 1")
	d.deadLetter("", "orders", "y", "boom 2")
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.show("dead?queue=orders")
	p.Eval(`document.querySelector("a.button").click()`, nil)
	p.at("Redrive 2 dead letters")
	p.Eval(`document.querySelector("main form button").click()`, nil)
	p.WaitFor(`document.querySelector(".notice.good")?.textContent.includes("Started: redriving")`)
	p.WaitFor(`document.getElementById("job").textContent.includes("2 messages") && document.querySelector("#job progress").value === 2`)
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "2 ready") {
		t.Error(got)
	}
	p.sound("redrive")
}

func TestCodeInFragmentSignsIn(t *testing.T) {
	d := open(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prefix+"code", nil)
	r.Header.Set("Authorization", "Bearer "+d.mint("", nil).Reveal())
	_, code, _ := strings.Cut(d.browser().do(r).body, `"one_time_code":"`)
	code = code[:strings.IndexByte(code, '"')]
	p := d.openTab(t)
	p.Open(p.base + "login#" + code)
	p.at("Overview")
	p.WaitFor(`!location.href.includes("code-")`)
	p.sound("login")
}

func TestThemeIsKept(t *testing.T) {
	d := open(t)
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.Eval(`document.getElementById("theme").click()`, nil)
	p.show("queues")
	p.WaitFor(`document.documentElement.dataset.theme === "dark" && getComputedStyle(document.documentElement).colorScheme === "dark"`)
}

func TestPageSaysThatSessionHasEnded(t *testing.T) {
	d := open(t)
	token := d.mint("", nil)
	p := d.openTab(t)
	p.signIn(token.Reveal())
	p.show("queues")
	if err := d.caller("").RevokeToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	p.WaitFor(`document.getElementById("offline").textContent.includes("The session has ended")`)
	p.Eval(`document.querySelector("#offline a").click()`, nil)
	p.at("Sign in")
}

// TestPageComesBackAfterRestart is CON-2.
func TestPageComesBackAfterRestart(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.show("queues")
	p.stop()
	p.WaitFor(`document.getElementById("offline").textContent.includes("does not answer")`)
	p.start(d)
	d.send("", "newcomer", "x")
	p.WaitFor(`document.getElementById("offline").hidden && document.getElementById("queues").textContent.includes("newcomer")`)
}

func TestStreamEndsWithHandler(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x", func(out *driver.Outgoing) { out.Body = []byte("</script>\nline two") })
	b := d.logIn(d.mint("", nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.console.Close()
	a := b.do(httptest.NewRequestWithContext(ctx, http.MethodGet, prefix+"live?page=queue%3Fname%3Dorders", nil)) // returns because the handler is closed
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %d %v", a.status, a.header)
	}
	for _, page := range []string{"confirm%3Fdo%3Dpurge", "nowhere", "https%3A%2F%2Fevil.example%2Fqueues"} {
		b.expect(b.get("live?page="+page), http.StatusNotFound)
	}
}

// An eventWriter is a response that records its write deadline, and calls sent after each write.
type eventWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	sent     func()
}

func (w *eventWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

func (w *eventWriter) Write(p []byte) (int, error) {
	defer w.sent()
	return w.ResponseRecorder.Write(p)
}

func TestStreamHasNoDeadlineBetweenWrites(t *testing.T) {
	d := open(t)
	b := d.logIn(d.mint("", nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &eventWriter{ResponseRecorder: httptest.NewRecorder(), sent: cancel} // the stream ends after its first event
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, prefix+"live?page=queues", nil)
	r.AddCookie(&http.Cookie{Name: "mailbox_console", Value: b.cookie})
	d.console.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), "event: fragment") || !w.deadline.IsZero() {
		t.Errorf("deadline %v after %q", w.deadline, w.Body)
	}
}
