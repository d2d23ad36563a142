package console_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// shop fills the queues of a made-up shop, and returns the ids of a waiting and of a dead message.
func (d *env) shop() (waiting, dead string) {
	for i := range 7 {
		d.deadLetter("", "emails", fmt.Sprintf(`{"to":"user%d@example.org","template":"receipt"}`, i), fmt.Sprintf("dial smtp 10.1.0.%d:25: connection refused after %d ms", i, 900+i))
	}
	for i := range 3 {
		dead = d.deadLetter("", "emails", fmt.Sprintf(`{"to":"broken-%d"}`, i), fmt.Sprintf("invalid address %q", fmt.Sprint("broken-", i)))
	}
	for i := range 40 {
		d.send("", "thumbnails", fmt.Sprintf("img/%04d.jpg", i), func(out *driver.Outgoing) { out.Delay = 2 * time.Hour })
	}
	for _, queue := range []string{"invoices", "audit.events", "search/index"} {
		d.send("", queue, "{}")
	}
	d.send("acme", "orders", "{}")
	c := d.caller("")
	if err := c.Pause(d.t.Context(), "invoices"); err != nil {
		d.t.Fatal(err)
	}
	for i := range 90 {
		d.send("", "exports", fmt.Sprintf(`{"export":%d}`, i))
	}
	d.kill("exports", 90, func(i int) string { return fmt.Sprintf("open /exports/%d.csv: no space left on device", i) })
	if err := c.Configure(d.t.Context(), "webhooks", driver.Config{FairGroups: true, GroupLimits: "in-flight=1"}); err != nil {
		d.t.Fatal(err)
	}
	d.pastHour()
	for i := range 24 {
		waiting = d.order(i)
	}
	got := d.hold("orders", "billing@host-7:4312", 5)
	d.hold("orders", "billing@host-9:118", 2)
	d.work("", "emails", "mailer@host-7:4400", 1)
	nack := broker.Nack{Receipt: got[0].Receipt, Delay: time.Hour, Cause: "payment provider: HTTP 503"}
	if err := c.Nack(d.t.Context(), "orders", []broker.Nack{nack}); err != nil {
		d.t.Fatal(err)
	}
	d.hold("thumbnails", "aws-sdk-go-v2/1.41.0 os/linux lang/go", 1)
	for i := range 5 {
		d.send("", "webhooks", "{}", func(out *driver.Outgoing) { out.Group = fmt.Sprint("shop-", i/3) })
	}
	d.hold("webhooks", "hooks@host-2:90", 5)
	for _, s := range []schedule.Schedule{
		{Name: "nightly-report", Cron: "0 3 * * *", Body: []byte(`{"report":"daily"}`)}, {Name: "reminders", Cron: "30 8 * * 1-5", Zone: "Europe/Berlin", Body: []byte("{}")},
		{Name: "month-end", Cron: "0 6 1 * *", Body: []byte("{}")}, {Name: "rates", Every: 15 * time.Minute, Body: []byte("EUR")}, {Name: "old-export", Every: time.Hour, Body: []byte("{}"), Paused: true},
	} {
		if _, err := c.PutSchedule(d.t.Context(), "invoices", s); err != nil {
			d.t.Fatal(err)
		}
	}
	for i := range 5 {
		d.request("", fmt.Sprint("rates-", i), map[int]*driver.Answer{1: {Body: []byte(`{"currency":"EUR","rate":1.0842}`)}, 3: {Failure: "no such currency"}}[i])
	}
	d.broker.Sample(d.t.Context(), time.Now()) // charts end with what the pages count
	return got[0].ID, dead
}

// hold receives messages for a worker of the shop, and holds them for longer than the pictures take.
func (d *env) hold(queue, name string, most int) []broker.Delivery {
	d.t.Helper()
	got := d.work("", queue, name, most)
	for _, m := range got {
		if _, err := d.caller("").Extend(d.t.Context(), queue, []broker.Extension{{Receipt: m.Receipt, Visibility: time.Hour}}); err != nil {
			d.t.Fatal(err)
		}
	}
	return got
}

// order sends an order of the shop, for one of eight customers, and returns its id.
func (d *env) order(i int) string {
	customer := fmt.Sprint("c-", 1042+5*i*i%23%8)
	return d.send("", "orders", fmt.Sprintf(`{"order":%d,"total":%d.90,"lines":[{"sku":"A-17","count":2},{"sku":"B-4","count":1}]}`, 9007199254740993+i, 20+i*37%200), func(out *driver.Outgoing) {
		out.Attributes = map[string]string{"customer": customer, "content-type": "application/json", "region": "eu-central-1"}
		out.Group = customer
	})
}

// pastHour makes a history of queue orders: a backlog that rises and falls, and a moment of failures.
func (d *env) pastHour() {
	d.t.Helper()
	c := d.caller("")
	now, backlog := time.Now(), 0
	for i := range 358 {
		n := int(12 + 5*math.Sin(float64(i)/25) + 3*math.Sin(float64(i)/7))
		for range n {
			d.send("", "orders", "{}")
		}
		backlog += n
		d.aged.Store(int64(time.Duration(backlog) * time.Second))
		most := backlog - int(60-45*math.Cos(2*math.Pi*float64(i-357)/170))
		got, err := c.Receive(d.t.Context(), "orders", driver.ReceiveRequest{Max: max(most, 1), Visibility: time.Minute})
		if err != nil {
			d.t.Fatal(err)
		}
		backlog -= len(got)
		var receipts []string
		for _, m := range got {
			receipts = append(receipts, m.Receipt)
		}
		if i/4 == 60 {
			request := broker.DeadLetterRequest{Receipt: receipts[0], Reason: driver.ReasonFatal, Error: "payment provider: HTTP 503"}
			if err := c.DeadLetter(d.t.Context(), "orders", []broker.DeadLetterRequest{request}); err != nil {
				d.t.Fatal(err)
			}
			receipts = receipts[1:]
		}
		if err := c.Ack(d.t.Context(), "orders", receipts); err != nil && len(receipts) > 0 {
			d.t.Fatal(err)
		}
		d.broker.Sample(d.t.Context(), now.Add(time.Duration(i-358)*broker.HistoryEvery))
	}
	d.aged.Store(0)
	d.ack("orders", backlog)
}

// ack receives and acks messages.
func (d *env) ack(queue string, n int) {
	d.t.Helper()
	c := d.caller("")
	got, err := c.Receive(d.t.Context(), queue, driver.ReceiveRequest{Max: n, Visibility: time.Minute})
	for _, m := range got {
		if err == nil {
			err = c.Ack(d.t.Context(), queue, []string{m.Receipt})
		}
	}
	if err != nil || len(got) != n {
		d.t.Fatalf("acked %d messages of %d, %v", len(got), n, err)
	}
}

// trade sends and acks messages of the shop as the time passes, and continues its history, until end is called.
func (d *env) trade(t *testing.T) (end func()) {
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { d.broker.RunHistory(ctx) })
	all.Go(func() {
		for i := 24; ctx.Err() == nil; i++ {
			d.order(i)
			d.ack("orders", 1)
			select {
			case <-ctx.Done():
			case <-time.After(700 * time.Millisecond):
			}
		}
	})
	return func() {
		stop()
		all.Wait()
	}
}

// A tab is a page of a real browser, and the server that it talks to.
type tab struct {
	*browsertest.Browser
	t       *testing.T
	address string
	base    string
	server  *httptest.Server
}

func (d *env) openTab(t *testing.T) *tab {
	t.Helper()
	return d.tabOf(t, browsertest.Start(t))
}

// start serves the console, at the same address as before.
func (p *tab) start(d *env) {
	p.t.Helper()
	listener, err := new(net.ListenConfig).Listen(p.t.Context(), "tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix, d.console)
	p.server = httptest.NewUnstartedServer(mux)
	_ = p.server.Listener.Close()
	p.server.Listener = listener
	p.server.Start()
	p.address = listener.Addr().String()
}

// stop cuts all connections and stops listening.
func (p *tab) stop() {
	p.server.Listener.Close()
	p.server.CloseClientConnections()
	p.server.Close()
}

// signIn types a token into the login page.
func (p *tab) signIn(token string) {
	p.t.Helper()
	p.Open(p.base + "login")
	p.WaitFor(`document.readyState === "complete" && document.activeElement.id === "token"`)
	p.Paste(token)
	p.Type("\n")
	p.at("Overview")
}

// show opens a page and waits for its first live update, if it has live parts.
func (p *tab) show(page string) {
	p.t.Helper()
	p.Open(p.base + page)
	p.WaitFor(`!document.querySelector("[data-live]") || document.documentElement.dataset.updates > 0`)
	p.sound(page)
}

// sound checks that the page made no error.
func (p *tab) sound(page string) {
	p.t.Helper()
	for _, problem := range p.Problems() {
		p.t.Errorf("%s: %s", page, problem)
	}
}

// screensOf are the pages of the shop by the names of their pictures.
func screensOf(d *env) []struct{ name, page string } {
	waiting, dead := d.shop()
	b := d.logIn(d.mint("", nil))
	_, cause, _ := strings.Cut(b.get("dead?queue=emails").body, "cause=")
	job, err := d.caller("").StartJob(d.t.Context(), broker.JobRequest{Queue: "emails", Action: broker.JobCount})
	if err != nil {
		d.t.Fatal(err)
	}
	return []struct{ name, page string }{
		{"jobs", "jobs"}, {"job", "job?id=" + job.ID}, {"confirm-redrive", "confirm?do=redrive&queue=emails"},
		{"overview", ""}, {"queues", "queues"}, {"workers", "workers"}, {"queue", "queue?name=orders"}, {"message", "message?queue=orders&id=" + waiting},
		{"dead-letters", "dead?queue=emails"}, {"cause", "dead?queue=emails&cause=" + cause[:12]}, {"dead-queues", "dead"},
		{"dead-message", "message?queue=emails&id=" + dead}, {"schedules", "schedules"}, {"groups", "groups?queue=orders"}, {"tenants", "tenants"}, {"edit-schedule", "edit-schedule?queue=invoices&schedule=nightly-report"}, {"schedule", "schedule?queue=invoices&schedule=nightly-report"},
		{"requests", "requests"}, {"request", "request?slot=rates-1"}, {"access", "access"}, {"health", "health"}, {"confirm", "confirm?do=purge&queue=orders"}, {"search", "queue?name=orders&text=A-17&limit=20#messages"}, {"empty", "queue?name=orders&older=99h"}, {"error", "queue?name=missing"},
	}
}

// TestPagesAreSoundInBrowser is CON-1 and CON-2: every screen, light and dark, narrow and wide, without an error of the
// script, a violation of the policy, or a page that is wider than the window. With
// MAILBOX_SCREENSHOTS it writes the pictures of docs/console.md there; make screenshots does so.
func TestPagesAreSoundInBrowser(t *testing.T) {
	volume.InFull(t)
	d := open(t)
	axe := browsertest.ReadAxe(t)
	all := screensOf(d)
	p := d.openTab(t)
	pictures := os.Getenv("MAILBOX_SCREENSHOTS")
	if pictures != "" {
		all[1].page = "job?id=" + d.slowJob("", "exports").ID
		defer d.trade(t)()
	}
	p.Open(p.base + "login")
	p.sound("login")
	p.accessible(axe, "login")
	p.picture(pictures, "login", 1600)
	p.signIn(d.mint("", nil).Reveal())
	for _, look := range []struct {
		width  int
		scheme string
	}{{1600, "light"}, {1600, "dark"}, {400, "light"}, {400, "dark"}} {
		p.Resize(look.width, 900, look.scheme)
		for _, s := range all {
			p.open(s.page)
			var width int
			p.Eval("document.documentElement.scrollWidth", &width)
			if width > look.width {
				t.Errorf("%s is %d pixels wide in a window of %d", s.name, width, look.width)
			}
			name := s.name
			p.accessible(axe, s.name)
			if look.scheme == "dark" {
				name += "-dark"
			}
			if look.width == 400 {
				name += "-narrow"
			}
			p.picture(pictures, name, look.width)
		}
	}
}

// pictured are the pictures of docs/console.md.
var pictured = []string{
	"login", "overview", "queues-dark", "workers", "queue", "queue-dark-narrow", "message", "dead-message", "dead-queues", "dead-letters", "cause", "jobs", "job", "confirm-redrive", "search", "requests", "request", "schedules", "schedule", "edit-schedule", "groups", "tenants", "access", "health", "confirm",
}

// open shows a page, which may be an error.
func (p *tab) open(page string) {
	p.t.Helper()
	if strings.Contains(page, "missing") {
		p.Open(p.base + page)
		p.Problems() // the status is one
		return
	}
	p.show(page)
}

// accessible checks the page with axe.
func (p *tab) accessible(axe, name string) {
	p.t.Helper()
	for _, violation := range p.Violations(axe) {
		p.t.Errorf("%s: %s", name, violation)
	}
}

func (p *tab) picture(folder, name string, width int) {
	p.t.Helper()
	if folder == "" || !slices.Contains(pictured, name) {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), p.Screenshot(width, 1000), 0o644); err != nil {
		p.t.Fatal(err)
	}
}
