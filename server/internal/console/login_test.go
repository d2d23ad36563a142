package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
)

// code returns a one-time code for a token.
func (d *env) code(token capability.Token) string {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.t.Context(), http.MethodPost, prefix+"code", nil)
	r.Header.Set("Authorization", "Bearer "+token.Reveal())
	a := d.browser().do(r)
	_, after, ok := strings.Cut(a.body, `"one_time_code":"`)
	if a.status != http.StatusOK || !ok {
		d.t.Fatalf("got %d %s", a.status, a.body)
	}
	return after[:strings.IndexByte(after, '"')]
}

// TestOneTimeCodeEndsAfterMinute is CON-1.
func TestOneTimeCodeEndsAfterMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		token := d.mint("", nil)
		early, late := d.code(token), d.code(token)
		time.Sleep(time.Minute - time.Nanosecond)
		b := d.browser()
		b.expect(b.post("login", "token", early), http.StatusSeeOther)
		time.Sleep(time.Nanosecond)
		b = d.browser()
		b.expect(b.post("login", "token", late), http.StatusUnauthorized, "older than a minute")
		if b.cookie != "" {
			t.Error("a code of a minute ago began a session")
		}
	})
}

// TestNarrowedSessionEndsWithItsToken is CON-1: a session by a code is narrowed like its token, and what it mints ends with it.
func TestNarrowedSessionEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.send("", "orders", "x")
		narrowed, err := d.mint("", nil).Narrow(capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(2*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		b := d.browser()
		b.expect(b.post("login", "token", d.code(narrowed)), http.StatusSeeOther)
		b.expect(b.get("access"), 200, narrowed.NarrowedID().String())
		b.change("do=pause&queue=orders", "Paused orders")
		confirmation := b.post("confirm", "do", "mint", "csrf", b.csrf(), "operation", "peek", "queues", "*", "lifetime", "24h")
		b.expect(b.submit(confirmation), http.StatusSeeOther)
		_, minted, _ := strings.Cut(b.get("access").body, `class="body secret"`)
		_, minted, _ = strings.Cut(minted, ">")
		minted, _, _ = strings.Cut(minted, "<")
		token, err := capability.Parse(minted)
		if err != nil {
			t.Fatalf("minted %q: %v", minted, err)
		}
		other := d.logIn(token)
		time.Sleep(2*time.Hour - time.Second)
		b.expect(b.get("queue?name=orders"), 200)
		other.expect(other.get("queue?name=orders"), 200)
		time.Sleep(2 * time.Second)
		b.expect(b.get("queue?name=orders"), http.StatusSeeOther)
		other.expect(other.get("queue?name=orders"), http.StatusSeeOther)
	})
}
