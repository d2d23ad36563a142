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
