package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// openCounted returns a console that counts how often the health of the daemon is shown, which the overview does
// for operators.
func openCounted(t *testing.T, looks *int) *env {
	d := open(t)
	d.console = console.New(console.Options{Broker: d.broker, Health: func(context.Context) console.Health {
		*looks++
		return console.Health{}
	}})
	return d
}

// live shows a live page for a time, and returns its events.
func (b *browser) live(ctx context.Context, page string) string {
	return b.do(httptest.NewRequestWithContext(ctx, http.MethodGet, prefix+"live?page="+page, nil)).body
}

func TestEqualViewsShareOneRendering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		d := openCounted(t, &looks)
		defer d.console.Close()
		d.send("", "orders", "x")
		ctx, leave := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer leave()
		var all sync.WaitGroup
		for range 100 {
			b := d.logIn(d.mint("", nil)) // a token of its own with the same rights
			all.Go(func() {
				events := b.live(ctx, "")
				for _, part := range []string{"figures", "history", "busiest", "health"} {
					if !strings.Contains(events, `"id":"`+part+`"`) {
						t.Errorf("a stream lacks %q", part)
					}
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		all.Wait()
		if looks < 30 || looks > 31 {
			t.Errorf("%d renderings for 100 streams over a minute, want one every 2 s", looks)
		}
	})
}

func TestViewsWithOtherRightsAreRenderedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.send("", "orders", "x")
		d.send("acme", "secret", "x")
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
		defer leave()
		var all sync.WaitGroup
		stats := []capability.Operation{capability.OpStats, capability.OpPeek}
		for _, test := range []struct {
			b           *browser
			page        string
			shows, lack string
		}{
			{d.logIn(d.mint("", nil)), "queues", "secret", ""},
			{d.logIn(d.mint("acme", nil)), "queues", "secret", "orders"},
			{d.logIn(d.mint("other", nil)), "queues", "No queue yet", "secret"},
			{d.logIn(d.mint("", stats, capability.Queue("orders"))), "queues", "orders", "secret"},
			{d.logIn(d.mint("", stats, capability.Queue("invoices"))), "queues", "invoices", "orders"},
			{d.logIn(d.mint("", nil)), "queue%3Fname%3Dorders", "messages", ""},
			{d.logIn(d.mint("", []capability.Operation{capability.OpStats}, capability.Queue("orders"))), "queue%3Fname%3Dorders", "states", "message?"},
		} {
			all.Go(func() {
				events := test.b.live(ctx, test.page)
				if !strings.Contains(events, test.shows) || test.lack != "" && strings.Contains(events, test.lack) {
					t.Errorf("%s: want %q and not %q in %s", test.page, test.shows, test.lack, events)
				}
			})
		}
		all.Wait()
	})
}

// TestReadOnlySessionSharesNoButtons: what a session may change is part of what it shares.
func TestReadOnlySessionSharesNoButtons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.deadLetter("", "orders", "x", "boom")
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
		defer leave()
		job, err := d.caller("").StartJob(ctx, broker.JobRequest{Queue: "orders", Action: broker.JobCount})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // it ends
		token := d.mint("", nil)
		var all sync.WaitGroup
		for _, pairs := range [][]string{nil, {"read_only", "on"}} {
			b := d.logIn(token, pairs...)
			all.Go(func() {
				events := b.live(ctx, "job%3Fid%3D"+job.ID)
				if hasButton := strings.Contains(events, "confirm?"); hasButton != (pairs == nil) {
					t.Errorf("read-only %v: a change is offered: %v", pairs != nil, hasButton)
				}
			})
		}
		all.Wait()
	})
}

func TestRevokedTokenEndsOnlyItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.send("", "orders", "x")
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
		defer leave()
		first, second := d.mint("", nil), d.mint("", nil)
		events := make(map[capability.TokenID]string)
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, token := range []capability.Token{first, second} {
			b := d.logIn(token)
			all.Go(func() {
				text := b.live(ctx, "queues")
				mu.Lock()
				defer mu.Unlock()
				events[token.ID()] = text
			})
			synctest.Wait() // the first renders
		}
		if err := d.caller("").RevokeToken(ctx, first); err != nil {
			t.Fatal(err)
		}
		d.send("", "later", "x")
		all.Wait()
		if text := events[first.ID()]; !strings.Contains(text, "event: ended") || strings.Contains(text, "later") {
			t.Errorf("the revoked one: %s", text)
		}
		if text := events[second.ID()]; strings.Contains(text, "event: ended") || !strings.Contains(text, "later") {
			t.Errorf("the other one: %s", text)
		}
	})
}

// TestStreamThatLeavesDuringRenderingSharesNothing: what a stream renders while its browser goes away may lack parts.
func TestStreamThatLeavesDuringRenderingSharesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		slow := true
		d.console = console.New(console.Options{Broker: d.broker, Health: func(ctx context.Context) console.Health {
			if slow {
				slow = false
				<-ctx.Done()
				return console.Health{Notes: map[string]string{"profile": "half a page"}}
			}
			return console.Health{}
		}})
		defer d.console.Close()
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		staying, end := context.WithTimeout(t.Context(), 5*time.Second)
		defer end()
		a, b := d.logIn(d.mint("", nil)), d.logIn(d.mint("", nil))
		var all sync.WaitGroup
		all.Go(func() { a.live(leaving, "") })
		synctest.Wait()
		all.Go(func() {
			if events := b.live(staying, ""); !strings.Contains(events, `"id":"figures"`) || strings.Contains(events, "half a page") {
				t.Errorf("got %s", events)
			}
		})
		all.Wait()
	})
}

// TestLiveOverviewSharesFigures: what it measures serves other looks at the queue, and the reverse.
func TestLiveOverviewSharesFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.send("", "orders", "x")
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
		defer leave()
		b := d.logIn(d.mint("", nil))
		all := make(chan string)
		go func() { all <- b.live(ctx, "") }()
		synctest.Wait()
		before, err := d.caller("").Figures(ctx, "orders", time.Second)
		d.send("", "orders", "x")
		after, errAfter := d.caller("").Figures(ctx, "orders", time.Second)
		if err != nil || errAfter != nil || before.Ready != 1 || after.Ready != 1 || !after.At.Equal(before.At) {
			t.Errorf("%+v, %v, then %+v, %v; want the figures of the overview", before, err, after, errAfter)
		}
		if now, err := d.caller("").Figures(ctx, "orders", 0); err != nil || now.Ready != 2 {
			t.Errorf("now: %+v, %v", now, err)
		}
		<-all
		d.send("", "orders", "x")
		seconds, leave := context.WithTimeout(t.Context(), 3*time.Second)
		defer leave()
		if _, err := d.caller("").Figures(seconds, "orders", 0); err != nil {
			t.Fatal(err)
		}
		d.send("", "orders", "x")
		events := b.live(seconds, "")
		first, second := strings.Index(events, readyTile+"3"), strings.Index(events, readyTile+"4")
		if first < 0 || second < first {
			t.Errorf("want the 3 messages that were counted before, and then 4: %s", events)
		}
	})
}

// readyTile begins the number of ready messages in an event of a live overview.
const readyTile = `ready\u003c/dt\u003e\u003cdd\u003e`

// TestLivePartsContainNoCSRFToken: streams share them, so a token of one session would reach another.
func TestLivePartsContainNoCSRFToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		id := d.deadLetter("", "orders", "x", "boom")
		d.schedule("", "orders", "nightly")
		d.request("", "slot", nil)
		job, err := d.caller("").StartJob(t.Context(), broker.JobRequest{Queue: "orders", Action: broker.JobCount})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // it ends
		b := d.logIn(d.mint("", nil))
		csrf := inputs.FindStringSubmatch(b.get("").body)[2]
		for _, page := range []string{
			"", "queues", "queue?name=orders", "message?queue=orders&id=" + id, "workers", "dead", "dead?queue=orders", "jobs", "job?id=" + job.ID,
			"requests", "request?slot=slot", "schedules", "schedule?queue=orders&schedule=nightly", "health", "tenants",
		} {
			ctx, leave := context.WithTimeout(t.Context(), time.Second)
			events := b.live(ctx, url.QueryEscape(page))
			leave()
			if !strings.Contains(events, "event: fragment") || strings.Contains(events, csrf) || csrf == "" {
				t.Errorf("%s: live parts are missing or contain the token of the session: %s", page, events)
			}
		}
	})
}
