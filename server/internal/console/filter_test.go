package console_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

func TestSearchSaysHowFarItLooked(t *testing.T) {
	d := open(t)
	d.console = console.New(console.Options{Broker: d.broker, LookTime: 1}) // the least that is looked at
	for i := range 600 {
		d.send("", "orders", fmt.Sprintf("message %d.", i))
	}
	b := d.logIn(d.mint("", nil))
	b.expect(b.get("queue?name=orders&text=message+499."), 200, "1 message found so far, in the first 500 of 600 ready.")
	a := b.get("queue?name=orders&text=message+500.&group=&state=ready")
	b.expect(a, 200, "No message matches", "0 messages found so far, in the first 500 of 600 ready.")
	_, further, ok := strings.Cut(a.body, `<a href="queue?`)
	_, further, _ = strings.Cut(further, `<p class="quiet">0 messages found so far`)
	_, further, found := strings.Cut(further, `<a href="`)
	if !ok || !found {
		t.Fatal(main(a.body))
	}
	d.console = console.New(console.Options{Broker: d.broker, LookTime: time.Hour}) // a busy machine finds it too
	b = d.logIn(d.mint("", nil))
	a = b.get(html.UnescapeString(further[:strings.IndexByte(further, '"')]))
	b.expect(a, 200, "1 message found, in the next 100 ready.", "message 500.")
	if strings.Contains(a.body, "Go on") {
		t.Error("the search came to the end, and the page goes on")
	}
	b.expect(b.get("queue?name=orders&cursor=nonsense"), 200, "is not a cursor of this search")
}

// TestAgeAndReasonSelectInEachOrder is CON-2: a filter leaves the young messages out, and those that died of another cause.
func TestAgeAndReasonSelectInEachOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		c := d.caller("")
		die := func(body string, reason driver.Reason) {
			d.send("", "dying", body)
			got, err := c.Receive(t.Context(), "dying", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
			if err != nil || len(got) != 1 {
				t.Fatalf("received %d messages, %v", len(got), err)
			}
			if err := c.DeadLetter(t.Context(), "dying", []broker.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: reason, Error: "boom"}}); err != nil {
				t.Fatal(err)
			}
		}
		d.send("", "orders", "old-first")
		d.send("", "orders", "old-second")
		die("old-fatal", driver.ReasonFatal)
		die("old-parse", driver.ReasonParse)
		time.Sleep(10 * time.Minute)
		d.send("", "orders", "young")
		die("young-fatal", driver.ReasonFatal)
		die("young-parse", driver.ReasonParse)
		b := d.logIn(d.mint("", nil))
		body := regexp.MustCompile(`\b(?:old-\w+|young(?:-\w+)?)\b`)
		for _, c := range []struct{ page, oldest, newest string }{
			{"queue?name=orders", "old-first old-second young", "young old-second old-first"},
			{"queue?name=orders&older=5m", "old-first old-second", "old-second old-first"},
			{"queue?name=orders&older=11m", "", ""},
			{"queue?name=dying&reason=fatal", "old-fatal young-fatal", "young-fatal old-fatal"},
			{"queue?name=dying&reason=parse&older=5m", "old-parse", "old-parse"},
			{"queue?name=dying&reason=expired", "", ""},
			{"queue?name=dying&state=dead&older=5m", "old-fatal old-parse", "old-parse old-fatal"},
		} {
			for order, want := range map[string]string{"": c.oldest, "&order=newest": c.newest} {
				_, list, _ := strings.Cut(b.get(c.page+order).body, `id="messages"`)
				if got := strings.Join(body.FindAllString(list, -1), " "); got != want {
					t.Errorf("%s%s shows %q, want %q", c.page, order, got, want)
				}
			}
		}
	})
}

// TestLivePageUsesNoQuota: a page that stays open takes nothing from what workers with the same token may do.
func TestLivePageUsesNoQuota(t *testing.T) {
	d := open(t)
	for n := range 40 {
		d.deadLetter("", "orders", "x", "boom"+strings.Repeat("!", n)) // a cause each, because causes are counted
	}
	for _, page := range []string{"queue?name=orders", "dead?queue=orders"} {
		token, err := d.ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.MessagesPerSecond(1), capability.ExpiresAt(time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		b := d.logIn(token)
		ctx, cancel := context.WithCancel(t.Context())
		w := &eventWriter{ResponseRecorder: httptest.NewRecorder(), sent: cancel} // the stream ends after its first event
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, prefix+"live?page="+url.QueryEscape(page), nil)
		r.AddCookie(&http.Cookie{Name: "mailbox_console", Value: b.cookie})
		d.console.ServeHTTP(w, r)
		cancel()
		if !strings.Contains(w.Body.String(), "event: fragment") {
			t.Fatalf("%s: %s", page, w.Body)
		}
		b.expect(b.get(page), 200, "boom") // and this uses the quota up
		if a := b.get(page); !strings.Contains(a.body, "quota is used up") {
			t.Errorf("%s was counted in no quota: %s", page, main(a.body))
		}
	}
}

func TestQueueTellsWhatWaitsForLimitsOfGroups(t *testing.T) {
	d := open(t)
	c := d.caller("")
	if err := c.Configure(t.Context(), "orders", driver.Config{FairGroups: true, GroupLimits: "in-flight=1"}); err != nil {
		t.Fatal(err)
	}
	b := d.logIn(d.mint("", nil))
	for range 3 {
		if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte("x"), Group: "shop"}}}); err != nil {
			t.Fatal(err)
		}
	}
	b.lacks(b.get("queue?name=orders"), "at their limit")
	if got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 3, Visibility: time.Minute}); err != nil || len(got) != 1 {
		t.Fatalf("received %d messages, %v", len(got), err)
	}
	b.expect(b.get("queue?name=orders"), 200, "2 of the ready messages are in groups at their limit.")
}
