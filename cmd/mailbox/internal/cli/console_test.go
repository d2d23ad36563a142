package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/server"
)

func TestConsoleAddressSignsInOnce(t *testing.T) {
	d := start(t, inMemory())
	r := d.mailbox(t, "console", "--read-only")
	address := strings.TrimSpace(r.stdout)
	page, code, ok := strings.Cut(address, "#")
	if r.code != 0 || !ok || page != "http://"+d.Address(server.HTTP)+"/console/login" {
		t.Fatalf("got %+v", r)
	}
	for _, want := range []string{"is read-only", "used or is older than a minute"} {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Jar: jar}
		response, err := client.PostForm(page, url.Values{"token": {code}, "next": {"access"}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q: %v %s", want, err, text)
		}
		client.CloseIdleConnections()
	}
	http.DefaultClient.CloseIdleConnections()
}

// A visitor is a browser without script.
type visitor struct {
	t      *testing.T
	client *http.Client
	base   string
}

// signIn signs in with the address that mailbox console printed.
func signIn(t *testing.T, address string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	page, code, _ := strings.Cut(strings.TrimSpace(address), "#")
	v := &visitor{t, &http.Client{Jar: jar}, strings.TrimSuffix(page, "login")}
	t.Cleanup(v.client.CloseIdleConnections)
	if status, text := v.post("login", url.Values{"token": {code}}); status != http.StatusOK {
		t.Fatalf("signing in: %d %s", status, text)
	}
	return v
}

func (v *visitor) do(r *http.Request) (status int, text string) {
	v.t.Helper()
	response, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func (v *visitor) get(page string) (status int, text string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+page, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	return v.do(r)
}

func (v *visitor) post(page string, form url.Values) (status int, text string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+page, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return v.do(r)
}

// TestConsoleSendsNarrowedToken is CON-1: the daemon gets a token that ends with the session, and never the one of the command.
func TestConsoleSendsNarrowedToken(t *testing.T) {
	own, err := keyring.New(keyring.NewKey()).Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(100*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	var sent string
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"one_time_code":"code-x"}`)
	}))
	t.Cleanup(daemon.Close)
	environ := []string{"HOME=" + t.TempDir(), "MAILBOX_ADDR=" + daemon.Listener.Addr().String(), "MAILBOX_TOKEN=" + own.Reveal()}
	for _, c := range []struct {
		flags      []string
		operations int
		queues     string
	}{
		{nil, len(own.Inspect().Operations), "[*]"},
		{[]string{"--op", "stats,peek", "--queue", "orders,mails.*"}, 2, "[orders mails.*]"},
	} {
		if r := mailbox(t, environ, append([]string{"console"}, c.flags...)...); r.code != 0 || !strings.HasSuffix(strings.TrimSpace(r.stdout), "/console/login#code-x") {
			t.Fatalf("%q: %+v", c.flags, r)
		}
		token, err := capability.Parse(strings.TrimPrefix(sent, "Bearer "))
		if err != nil {
			t.Fatal(err)
		}
		got := token.Inspect()
		left := time.Until(got.ExpiresAt)
		if queues := fmt.Sprint(got.Queues); len(got.Operations) != c.operations || queues != c.queues || left > 8*time.Hour || left < 7*time.Hour {
			t.Errorf("%q: the token is for %v on %s for %v", c.flags, got.Operations, queues, left)
		}
		if token.ID() != own.ID() || token.NarrowedID() == own.NarrowedID() {
			t.Errorf("%q: the token is not narrowed from that of the command", c.flags)
		}
	}
	mailbox(t, environ, "console", "--op", "fly").wantCode(t, 2, "--op")
	mailbox(t, environ, "console", "--queue", "a*b").wantCode(t, 2, "--queue")
}

// TestConsoleSessionIsNarrowedAndRevokedAlone is CON-1: what the flags leave out is refused, and the narrowed id ends the session alone.
func TestConsoleSessionIsNarrowedAndRevokedAlone(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "orders", "x")
	d.must(t, "send", "mails", "x")
	v := signIn(t, d.must(t, "console", "--op", "stats,peek", "--queue", "orders"))
	if status, text := v.get("queue?name=orders"); status != http.StatusOK || strings.Contains(text, "Purge…") || !strings.Contains(text, "1 message") {
		t.Errorf("its queue: %d %s", status, text)
	}
	if status, text := v.get("queue?name=mails"); status != http.StatusForbidden {
		t.Errorf("another queue: %d %s", status, text)
	}
	if status, text := v.get("confirm?do=purge&queue=orders"); status != http.StatusForbidden {
		t.Errorf("another operation: %d %s", status, text)
	}
	_, text := v.get("access")
	_, id, found := strings.Cut(text, "<dt>narrowed id</dt><dd><code>")
	id, _, _ = strings.Cut(id, "</code>")
	if !found || !strings.HasPrefix(id, "7Z") || !strings.Contains(text, "may stats,peek") {
		t.Fatalf("the page Access has the id %q: %s", id, text)
	}
	d.must(t, "cap", "revoke", id, "--yes")
	if status, text := v.get("queue?name=orders"); status != http.StatusUnauthorized || !strings.Contains(text, "revoked") {
		t.Errorf("after its token was revoked: %d %s", status, text)
	}
	d.must(t, "stats", "orders") // the token that it was narrowed from is valid
}

func TestConsoleThatIsOffIsSaidSo(t *testing.T) {
	config := inMemory()
	config.ConsolePath = server.Off
	d := start(t, config)
	d.mailbox(t, "console").wantCode(t, 1, "serves no console at /console/")
	d.mailbox(t, "console", "--path", "console").wantCode(t, 2, "--path")
}
