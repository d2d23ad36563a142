package console_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// work receives messages as a worker does, and returns them.
func (d *env) work(tenant, queue, name string, most int) []broker.Delivery {
	d.t.Helper()
	token := d.mint(tenant, nil)
	c := d.broker.Caller(token, broker.Origin{Client: netip.MustParseAddr("10.0.3.7"), Worker: name, Protocol: "oap"})
	got, err := c.Receive(d.t.Context(), queue, driver.ReceiveRequest{Max: most, Visibility: 10 * time.Minute})
	if err != nil {
		d.t.Fatal(err)
	}
	return got
}

// TestWorkersAreShownWithWhatTheyHold is CON-2.
func TestWorkersAreShownWithWhatTheyHold(t *testing.T) {
	d := open(t)
	id := d.send("", "orders", "x")
	held := d.work("", "orders", "billing@host-7:4312", 1)
	d.work("", "orders", "idler", 1)
	report := broker.Extension{Receipt: held[0].Receipt, Visibility: time.Hour, Progress: driver.NewProgress(0.4, "page <4>")}
	if _, err := d.broker.Caller(d.mint("", nil), broker.Origin{}).Extend(t.Context(), "orders", []broker.Extension{report}); err != nil {
		t.Fatal(err)
	}
	b := d.logIn(d.mint("", nil))
	b.expect(b.get("message?queue=orders&id="+id), 200, "40 %: page &lt;4&gt;, reported")
	page := b.get("workers")
	b.expect(page, 200, "billing@host-7:4312", "oap 10.0.3.7", "works", "idle", "2 workers", `href="queue?name=orders"`)
	b.expect(b.get("workers?q=BILLING"), 200, "billing@host-7:4312", "1 worker<")
	b.lacks(b.get("workers?q=BILLING"), "idler")
	b.expect(b.get("workers?q=nothing"), 200, "None of 2 workers")
	_, panel, _ := strings.Cut(b.get("queue?name=orders").body, `id="workers"`)
	for _, want := range []string{"billing@host-7:4312", "idler", id, " for ", "until ", "40 %: page &lt;4&gt;"} {
		if !strings.Contains(panel, want) {
			t.Errorf("the page of the queue lacks %q: %s", want, panel)
		}
	}
}

// TestWorkersNeedTokenForStats is CON-1.
func TestWorkersNeedTokenForStats(t *testing.T) {
	d := open(t)
	id := d.send("", "orders", "x")
	d.send("", "mails", "x")
	held := d.work("", "orders", "w-orders", 1)
	report := broker.Extension{Receipt: held[0].Receipt, Visibility: time.Hour, Progress: driver.NewProgress(0.4, "page 4")}
	if _, err := d.broker.Caller(d.mint("", nil), broker.Origin{}).Extend(t.Context(), "orders", []broker.Extension{report}); err != nil {
		t.Fatal(err)
	}
	d.work("", "mails", "w-mails", 1)
	counter := d.logIn(d.mint("", []capability.Operation{capability.OpStats}, capability.Queue("orders")))
	counter.expect(counter.get("workers"), 200, "w-orders")
	counter.lacks(counter.get("workers"), "w-mails")
	_, panel, _ := strings.Cut(counter.get("queue?name=orders").body, `id="workers"`)
	if !strings.Contains(panel, "1 message") || strings.Contains(panel, id) || strings.Contains(panel, "page 4") {
		t.Errorf("a token without peek sees %s", panel)
	}
	sender := d.logIn(d.mint("", []capability.Operation{capability.OpSend}, capability.AnyQueue()))
	sender.lacks(sender.get("workers"), "w-orders", "w-mails")
	sender.lacks(sender.get("queue?name=orders"), "w-orders")
}

// TestWorkersOfOtherTenantsAreHidden is CON-1.
func TestWorkersOfOtherTenantsAreHidden(t *testing.T) {
	d := open(t)
	d.send("a", "orders", "x")
	held := d.send("b", "orders", "x")
	d.work("a", "orders", "worker-of-a", 1)
	d.work("b", "orders", "worker-of-b", 1)
	b := d.logIn(d.mint("a", nil))
	b.expect(b.get("workers"), 200, "worker-of-a")
	for _, page := range []string{"workers", "workers?q=worker", "queue?name=orders", "workers?tenant=b", "queue?name=orders&tenant=b"} {
		b.lacks(b.get(page), "worker-of-b", held)
	}
	b.expect(b.get("workers?tenant=b"), http.StatusForbidden)
	operator := d.logIn(d.mint("", nil))
	operator.lacks(operator.get("workers"), "worker-of")
	operator.expect(operator.get("workers?tenant=b"), 200, "worker-of-b", "You look into tenant", `href="queue?name=orders&amp;tenant=b"`)
	operator.expect(operator.get("queue?name=orders&tenant=b"), 200, "worker-of-b", held)
}

// TestManyWorkersMakeSmallPages fills the list, with names as long as they may be.
func TestManyWorkersMakeSmallPages(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	token := d.mint("", nil)
	for i := range 3000 {
		c := d.broker.Caller(token, broker.Origin{Worker: fmt.Sprintf("%04d-", i) + strings.Repeat("<", 120), Protocol: "http"})
		if _, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	b := d.logIn(d.mint("", nil))
	for _, page := range []string{"workers", "workers?page=60", "workers?page=999999999", "queue?name=orders"} {
		a := b.get(page)
		b.expect(a, 200)
		if len(a.body) > 200<<10 {
			t.Errorf("%s has %d bytes", page, len(a.body))
		}
	}
	b.expect(b.get("workers?page=60"), 200, "2999-", "Page 60 of 60")
	b.expect(b.get("queue?name=orders"), 200, "All 3,000 workers")
}

// TestWorkersAreLiveInBrowser is CON-2: reached by keys, and replaced as they change.
func TestWorkersAreLiveInBrowser(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.Type("gw")
	p.at("Workers")
	d.work("", "orders", "newcomer", 1)
	p.WaitFor(`document.getElementById("workers").textContent.includes("newcomer")`)
	p.Eval(`[...document.querySelectorAll("#workers a")].find((a) => a.textContent === "orders").click()`, nil)
	p.at("orders")
	p.WaitFor(`document.getElementById("workers").textContent.includes("newcomer")`)
	p.sound("queue")
}
