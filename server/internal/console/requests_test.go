package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// TestRequestsAreShownAndCancelled is CON-2.
func TestRequestsAreShownAndCancelled(t *testing.T) {
	d := open(t)
	d.request("", "waits", nil)
	d.request("", "done", &driver.Answer{Body: []byte(`{"rate":12345678901234567890}`)})
	d.request("", "failed", &driver.Answer{Failure: hostile, FailureKind: hostile})
	d.request("b", "of-b", nil)
	b := d.logIn(d.mint("", nil))
	list := b.get("requests")
	b.expect(list, 200, "waits", "done", "pending", "answered", "3 requests.")
	b.lacks(list, "of-b")
	pending := b.get("requests?state=pending")
	b.expect(pending, 200, "waits")
	b.lacks(pending, `slot=done`)
	b.expect(b.get("request?slot=done"), 200, "12345678901234567890")
	b.lacks(b.get("request?slot=done"), `href="confirm`)
	b.lacks(b.get("request?slot=failed"), "<script>alert", "<img src=x")
	b.expect(b.get("request?slot=of-b"), http.StatusNotFound)
	b.expect(b.get("request?slot=missing"), http.StatusNotFound)
	b.change("do=cancel-request&slot=waits", "Cancelled request waits.")
	b.expect(b.get("request?slot=waits"), 200, "cancelled")
	b.expect(b.get("confirm?do=cancel-request&slot=done"), http.StatusConflict)
}

func TestRequestsNeedTokenForThem(t *testing.T) {
	d := open(t)
	d.request("", "waits", nil)
	d.request("", "done", &driver.Answer{Body: []byte("secret answer")})
	asker := d.logIn(d.mint("", []capability.Operation{capability.OpAsk}, capability.AnyQueue()))
	asker.expect(asker.get("requests"), 200, "does not allow <code>admin</code>")
	asker.expect(asker.get("request?slot=done"), 200, "secret answer")
	answerer := d.logIn(d.mint("", []capability.Operation{capability.OpAnswer, capability.OpStats}, capability.AnyQueue()))
	a := answerer.get("request?slot=done")
	answerer.expect(a, 200, "does not allow <code>ask</code>")
	answerer.lacks(a, "secret answer")
	readOnly := d.logIn(d.mint("", nil), "read_only", "yes")
	for _, b := range []*browser{answerer, readOnly} {
		b.lacks(b.get("request?slot=waits"), `href="confirm`)
		b.expect(b.get("confirm?do=cancel-request&slot=waits"), http.StatusForbidden)
	}
	asker.change("do=cancel-request&slot=waits", "Cancelled request waits.")
}

// TestCancellationIsRecordedWhateverTokenAllows is CON-1.
func TestCancellationIsRecordedWhateverTokenAllows(t *testing.T) {
	d := open(t)
	for name, token := range map[string]capability.Token{
		"everything": d.mint("", nil), "ask": d.mint("", []capability.Operation{capability.OpAsk}, capability.AnyQueue()),
	} {
		d.request("", "asked-"+name, nil)
		d.logIn(token).change("do=cancel-request&slot=asked-"+name, "Cancelled request")
		records, _, err := d.caller("").Audit(t.Context())
		if err != nil || len(records) == 0 || records[len(records)-1].Subject != "asked-"+name || records[len(records)-1].TokenID != token.ID().String() {
			t.Errorf("%s: %v, %v", name, records, err)
		}
	}
}

func TestRequestIsCancelledInBrowser(t *testing.T) {
	d := open(t)
	d.request("", "waits", nil)
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.Type("gr")
	p.at("Requests")
	d.request("", "newcomer", nil)
	p.WaitFor(`document.getElementById("requests").textContent.includes("newcomer")`)
	p.Eval(`[...document.querySelectorAll("#requests a.id")].find((a) => a.textContent === "waits").click()`, nil)
	p.at("waits")
	p.Eval(`document.querySelector("a.button").click()`, nil)
	p.at("Cancel a request")
	p.Eval(`document.querySelector("main form button").click()`, nil)
	p.WaitFor(`document.querySelector(".notice.good")?.textContent.includes("Cancelled request waits")`)
	slot, err := d.caller("").Replies().Get(t.Context(), "waits")
	if err != nil || slot.State != driver.SlotCancelled {
		t.Errorf("%s, %v", slot.State, err)
	}
	p.sound("request")
	if got := strings.Join(p.Problems(), "\n"); got != "" {
		t.Error(got)
	}
}
