package console_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// A browserChange is a change that a person makes with the mouse.
type browserChange struct {
	do string // its name in the table of actions
	// page makes what the change concerns, and returns the page where it begins.
	page func() string
	fill func(p *tab) // the form on that page; nil if there is none
	// clicks lead from the page to the confirmation.
	clicks []string
	form   func(p *tab) // the form that the clicks led to; nil if there is none
	title  string
	says   []string     // the confirmation
	answer func(p *tab) // fills the form of the confirmation; nil if there is nothing to fill
	button string
	tells  string // the page after it
	// holds reports whether the effect is there.
	holds func(p *tab) bool
	audit []string // the records: operation, queue, messages
}

// queueIs returns whether a queue has these counts.
func (d *env) queueIs(queue, want string) func(*tab) bool {
	return func(*tab) bool { return d.stats("", queue) == want }
}

// filled sends messages to a queue: ready ones, and one that is delayed.
func (d *env) filled(queue string, ready int) string {
	for range ready {
		d.send("", queue, "x")
	}
	d.send("", queue, "x", func(out *driver.Outgoing) { out.Delay = time.Hour })
	return "queue?name=" + queue
}

func (d *env) queueChanges() []browserChange {
	return []browserChange{
		{
			do: "pause", page: func() string { return d.filled("pausing", 3) }, clicks: []string{"Pause"},
			title: "Pause pausing", says: []string{"Receivers get no messages of pausing until it is resumed", "0 messages in flight can be settled, and 3 ready messages wait"},
			button: "Pause", tells: "Paused pausing.", holds: d.queueIs("pausing", "3 ready, 1 delayed, 0 in flight, 0 dead, paused true"),
			audit: []string{`pause, queue "pausing", 0`},
		},
		{
			do: "resume", page: func() string {
				page := d.filled("resuming", 2)
				if err := d.caller("").Pause(d.t.Context(), "resuming"); err != nil {
					d.t.Fatal(err)
				}
				return page
			}, clicks: []string{"Resume"}, title: "Resume resuming", says: []string{"Receivers get messages of resuming again: 2 messages are ready"},
			button: "Resume", tells: "Resumed resuming.", holds: d.queueIs("resuming", "2 ready, 1 delayed, 0 in flight, 0 dead, paused false"),
			audit: []string{`resume, queue "resuming", 0`},
		},
		{
			do: "purge", page: func() string { return d.filled("purging", 2) }, clicks: []string{"Purge…"},
			title: "Purge purging", says: []string{"This removes 3 messages for good: 2 ready, 1 delayed, 0 in flight. Dead letters stay."},
			button: "Remove 3 messages", tells: "Removed 3 messages from purging.", holds: d.queueIs("purging", "0 ready, 0 delayed, 0 in flight, 0 dead, paused false"),
			audit: []string{`purge, queue "purging", 3`},
		},
	}
}

// dying makes two dead letters of one cause and one of another, and returns the id of the last.
func (d *env) dying(queue string) string {
	d.deadLetter("", queue, "x", "refused after 1 ms")
	d.deadLetter("", queue, "x", "refused after 2 ms")
	return d.deadLetter("", queue, "x", "unknown customer")
}

func (d *env) deadChanges() []browserChange {
	slow := func(p *tab) { p.Click("#f-rate", ""); p.Eval(`document.activeElement.select()`, nil); p.Paste("500") }
	const many = 5001 // one more than a page counts
	var slowJob broker.Job
	return []browserChange{
		{
			do: "redrive", page: func() string { d.dying("all"); return "dead?queue=all" }, clicks: []string{"Redrive all…"}, answer: slow,
			title: "Redrive 3 dead letters", says: []string{"This redrives 3 dead letters of all.", "their deliveries count from 0"},
			button: "Redrive 3 dead letters", tells: "Started: redriving dead letters of all.", holds: d.queueIs("all", "3 ready, 0 delayed, 0 in flight, 0 dead, paused false"),
			audit: []string{`start redrive job, queue "all", 0`, `redrive job done, queue "all", 3`},
		},
		{
			do: "redrive", page: func() string { d.dying("cause"); return "dead?queue=cause" }, clicks: []string{"refused after … ms", "Redrive 2…"},
			title: "Redrive 2 dead letters", says: []string{"This redrives 2 dead letters of cause with the cause: refused after … ms"},
			button: "Redrive 2 dead letters", tells: "Started: redriving dead letters of cause.", holds: d.queueIs("cause", "2 ready, 0 delayed, 0 in flight, 1 dead, paused false"),
			audit: []string{`start redrive job, queue "cause", 0`, `redrive job done, queue "cause", 2`},
		},
		{
			do: "redrive", page: func() string { return "message?queue=one&id=" + d.dying("one") }, clicks: []string{"Redrive"},
			title: "Redrive 1 dead letter", says: []string{"This redrives 1 dead letter of one, message "},
			button: "Redrive 1 dead letter", tells: "1 dead letter of one made ready.", holds: d.queueIs("one", "1 ready, 0 delayed, 0 in flight, 2 dead, paused false"),
			audit: []string{`redrive, queue "one", 1`},
		},
		{
			do: "discard", page: func() string { d.dying("gone"); return "dead?queue=gone" }, clicks: []string{"Discard all…"},
			title: "Discard 3 dead letters", says: []string{"This discards 3 dead letters of gone. Discarded messages are removed for good."},
			button: "Discard 3 dead letters", tells: "Started: discarding dead letters of gone.", holds: d.queueIs("gone", "0 ready, 0 delayed, 0 in flight, 0 dead, paused false"),
			audit: []string{`start discard job, queue "gone", 0`, `discard job done, queue "gone", 3`},
		},
		{
			do: "discard", page: func() string { return "message?queue=drop&id=" + d.dying("drop") }, clicks: []string{"Discard…"},
			title: "Discard 1 dead letter", says: []string{"This discards 1 dead letter of drop, message "},
			button: "Discard 1 dead letter", tells: "1 dead letter of drop discarded.", holds: d.queueIs("drop", "0 ready, 0 delayed, 0 in flight, 2 dead, paused false"),
			audit: []string{`discard, queue "drop", 1`},
		},
		{
			do: "count", page: func() string { d.deadLetters("", "counted", many); return "dead?queue=counted" }, clicks: []string{"Redrive all…", "Count them first"},
			title: "Count dead letters", says: []string{"This looks at all dead letters of counted, as a job, and changes nothing."},
			button: "Count", tells: "Started: counting dead letters of counted.", holds: func(p *tab) bool {
				p.reads("5,001 messages", "Redrive 5,001…", "Discard 5,001…")
				return d.stats("", "counted") == "0 ready, 0 delayed, 0 in flight, 5001 dead, paused false"
			},
			audit: []string{`start count job, queue "counted", 0`, `count job done, queue "counted", 5001`},
		},
		{
			do: "stop-job", page: func() string {
				d.deadLetters("", "stopped", 100)
				slowJob = d.slowJob("", "stopped")
				return "job?id=" + slowJob.ID
			}, clicks: []string{"Stop…"},
			title: "Stop a job", says: []string{"The job has made ready ", "of stopped, which stays so. The other dead letters stay dead."},
			button: "Stop", tells: "The job is stopped after ", holds: func(*tab) bool {
				j, err := d.caller("").Job(d.t.Context(), slowJob.ID)
				return err == nil && j.State == broker.JobStopped && j.Done < 100
			},
			audit: []string{`stop job, queue "stopped", 0`, `redrive job stopped, queue "stopped", `},
		},
	}
}

func (d *env) messageChanges() []browserChange {
	var id string
	delayed := func(queue string) func() string {
		return func() string {
			id = d.send("", queue, `{"n":1}`, func(out *driver.Outgoing) { out.Delay = time.Hour })
			return "message?queue=" + queue + "&id=" + id
		}
	}
	return []browserChange{
		{
			do: "remove", page: delayed("removing"), clicks: []string{"Remove…"}, title: "Remove a message", says: []string{"This removes message ", " of removing for good.", `{"n":1}`},
			button: "Remove 1 message", tells: "Removed message ", holds: d.queueIs("removing", "0 ready, 0 delayed, 0 in flight, 0 dead, paused false"),
			audit: []string{`edit remove, queue "removing", 0`},
		},
		{
			do: "ready", page: delayed("hurrying"), clicks: []string{"Make ready"}, title: "Make a message ready", says: []string{" of hurrying at once."},
			button: "Make ready", tells: "The message is ready.", holds: d.queueIs("hurrying", "1 ready, 0 delayed, 0 in flight, 0 dead, paused false"),
			audit: []string{`edit ready, queue "hurrying", 0`},
		},
		{
			do: "due", page: delayed("putting-off"), clicks: []string{"Change due time…"}, title: "Change the due time", says: []string{" of putting-off before this time."},
			answer: func(p *tab) {
				p.Click("#f-at", "")
				p.Eval(`document.activeElement.select()`, nil)
				p.Paste(time.Now().Add(48 * time.Hour).UTC().Format(time.DateTime))
			},
			button: "Change", tells: "The message is due at ", holds: func(*tab) bool {
				trace, err := d.caller("").Trace(d.t.Context(), "putting-off", id)
				return err == nil && time.Until(trace.Message.DueAt) > 47*time.Hour
			},
			audit: []string{`edit due, queue "putting-off", 0`},
		},
		{
			do: "priority", page: delayed("preferring"), clicks: []string{"Change priority…"}, title: "Change the priority", says: []string{" keeps its place and its age."},
			answer: func(p *tab) {
				p.Click("#f-priority", "")
				p.Eval(`document.activeElement.select()`, nil)
				p.Paste("7")
			},
			button: "Change", tells: "The priority of the message is 7.", holds: func(*tab) bool {
				trace, err := d.caller("").Trace(d.t.Context(), "preferring", id)
				return err == nil && trace.Message.Priority == 7
			},
			audit: []string{`edit priority, queue "preferring", 0`},
		},
	}
}

func (d *env) scheduleChanges() []browserChange {
	d.send("", "reports", "x")
	scheduled := func(name string) func() string {
		return func() string {
			d.schedule("", "reports", name)
			if name == "resumed" {
				if _, err := d.caller("").PauseSchedule(d.t.Context(), "reports", name); err != nil {
					d.t.Fatal(err)
				}
			}
			return "schedule?queue=reports&schedule=" + name
		}
	}
	is := func(name string, holds func(s *broker.ScheduleStatus) bool) func(*tab) bool {
		return func(*tab) bool {
			s, err := d.caller("").Schedule(d.t.Context(), "reports", name)
			return err == nil && holds(&s)
		}
	}
	return []browserChange{
		{
			do: "put-schedule", page: func() string { return "schedules" }, clicks: []string{"New schedule"},
			form: func(p *tab) {
				p.at("New schedule")
				for _, field := range [][2]string{{"#f-queue", "reports"}, {"#f-schedule", "made"}, {"#f-every", "15m"}, {"#f-body", "four"}} {
					p.Click(field[0], "")
					p.Type(field[1])
				}
				p.follow("Check…")
			}, title: "Store schedule made", says: []string{"It sends a message of 4 bytes to reports, every 15m0s. It is a new schedule."},
			button: "Store 1 schedule", tells: "Stored schedule made.", holds: is("made", func(s *broker.ScheduleStatus) bool { return s.Schedule.Every == 15*time.Minute }), audit: []string{`put schedule, queue "reports", 0`},
		},
		{
			do: "pause-schedule", page: scheduled("paused"), clicks: []string{"Pause"}, title: "Pause schedule paused", says: []string{"It sends nothing to reports until it is resumed", "0 3 * * * in UTC"},
			button: "Pause", tells: "Paused paused.", holds: is("paused", func(s *broker.ScheduleStatus) bool { return s.Schedule.Paused }), audit: []string{`pause schedule, queue "reports", 0`},
		},
		{
			do: "resume-schedule", page: scheduled("resumed"), clicks: []string{"Resume"}, title: "Resume schedule resumed", says: []string{"It sends to reports again: 0 3 * * * in UTC."},
			button: "Resume", tells: "Resumed resumed.", holds: is("resumed", func(s *broker.ScheduleStatus) bool { return !s.Schedule.Paused }), audit: []string{`resume schedule, queue "reports", 0`},
		},
		{
			do: "run-schedule", page: scheduled("run"), clicks: []string{"Run now"}, title: "Run schedule run", says: []string{"This sends its message to reports now: 18 bytes. Its due times stay as they are."},
			button: "Send 1 message", tells: "Sent message ", holds: d.queueIs("reports", "2 ready, 0 delayed, 0 in flight, 0 dead, paused false"), audit: []string{`run schedule, queue "reports", 0`},
		},
		{
			do: "remove-schedule", page: scheduled("removed"), clicks: []string{"Remove…"}, title: "Remove schedule removed", says: []string{"This removes schedule removed of reports for good. Messages that it sent stay."},
			button: "Remove 1 schedule", tells: "Removed removed.", holds: func(*tab) bool {
				all, err := d.caller("").ScheduleList(d.t.Context(), "reports")
				return err == nil && !slices.ContainsFunc(all, func(s schedule.Status) bool { return s.Schedule.Name == "removed" })
			}, audit: []string{`remove schedule, queue "reports", 0`},
		},
	}
}

// accessChanges are those of requests and tokens. secrets are the tokens that they show or read.
func (d *env) accessChanges(secrets *[]string) []browserChange {
	var revoked capability.Token
	return []browserChange{
		{
			do: "cancel-request", page: func() string { d.request("", "waits", nil); return "request?slot=waits" }, clicks: []string{"Cancel…"},
			title: "Cancel a request", says: []string{"The caller of request waits gets no answer, and is told so."},
			button: "Cancel 1 request", tells: "Cancelled request waits.", holds: func(*tab) bool {
				slot, err := d.caller("").Replies().Get(d.t.Context(), "waits")
				return err == nil && slot.State == driver.SlotCancelled
			}, audit: []string{`cancel request, queue "", 0`},
		},
		{
			do: "mint", page: func() string { return "access" }, fill: func(p *tab) {
				p.Click("label.check", "peek")
				p.Click("label.check", "stats")
				p.Click("#f-queues", "")
				p.Type("orders.*, pausing")
			}, clicks: []string{"Mint…"}, title: "Mint a token", says: []string{"The new token allows this, as far as yours does.", "may stats,peek", "on queues orders.*,pausing"},
			button: "Mint 1 token", tells: "Minted token ", holds: func(p *tab) bool {
				var text string
				p.Eval(`document.querySelector("pre.secret").textContent`, &text)
				token, err := capability.Parse(text)
				if err != nil {
					p.t.Fatal(err)
				}
				*secrets = append(*secrets, text)
				c := d.broker.Caller(token, broker.Origin{})
				_, allowed := c.Stats(d.t.Context(), "pausing")
				_, refused := c.Stats(d.t.Context(), "purging")
				p.show("access")
				var kept bool
				p.Eval(`document.querySelector("pre.secret") !== null`, &kept)
				return allowed == nil && capability.ReasonOf(refused) != "" && !kept
			}, audit: []string{`mint token, queue "", 0`},
		},
		{
			do: "revoke", page: func() string {
				revoked = d.mint("", nil)
				*secrets = append(*secrets, revoked.Reveal())
				return "access"
			}, fill: func(p *tab) {
				p.Click("#f-token", "")
				p.Paste(revoked.Reveal())
			}, clicks: []string{"Revoke…"}, title: "Revoke a token", says: []string{"This revokes the family of the token that you pasted", "is refused from now on"},
			button: "Revoke 1 token", tells: "Revoked token ", holds: func(*tab) bool {
				_, err := d.broker.Caller(revoked, broker.Origin{}).Stats(d.t.Context(), "pausing")
				return capability.ReasonOf(err) != ""
			}, audit: []string{`revoke, queue "", 0`},
		},
	}
}

// changeEverything is CON-1: every change that the console can make is begun on a page, confirmed with what it
// will touch, made and recorded, with the mouse.
func changeEverything(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	token := d.mint("", nil)
	secrets := []string{token.Reveal()}
	p := d.tabOf(t, shared)
	p.signIn(token.Reveal())
	p.Resize(1000, 600, "light")
	tried := make(map[string]bool)
	for _, c := range slices.Concat(d.queueChanges(), d.deadChanges(), d.messageChanges(), d.scheduleChanges(), d.accessChanges(&secrets)) {
		tried[c.do] = true
		p.make(d, &c, token)
	}
	for _, name := range console.ActionNames() {
		if !tried[name] {
			t.Errorf("action %q is not made in the browser: give it a line in this file", name)
		}
	}
	p.hides(secrets...)
}

// make makes a change as a person does, and checks it and its records.
func (p *tab) make(d *env, c *browserChange, token capability.Token) {
	p.t.Helper()
	page := c.page()
	before := len(d.trail())
	p.show(page)
	if c.fill != nil {
		c.fill(p)
	}
	for i, click := range c.clicks {
		p.follow(click)
		if i < len(c.clicks)-1 {
			p.WaitFor(fmt.Sprintf(`document.readyState === "complete" && [...document.querySelectorAll("main a")].some((e) => e.textContent === %q)`, c.clicks[i+1]))
		}
	}
	if c.form != nil {
		c.form(p)
	}
	p.at(c.title)
	p.reads(c.says...)
	if got := d.trail(); len(got) != before {
		p.t.Errorf("asking recorded %v", got[before:])
	}
	if c.answer != nil {
		c.answer(p)
	}
	p.Click("main form button", c.button)
	p.WaitFor(fmt.Sprintf(`document.querySelector(".notice.good")?.textContent.includes(%q)`, c.tells))
	p.WaitFor(`document.activeElement === document.querySelector(".notice.good")`) // the next Tab is behind it
	proctest.Eventually(p.t, time.Minute, c.do+" has its effect", func() bool { return c.holds(p) })
	var got []string
	proctest.Eventually(p.t, time.Minute, c.do+" is recorded", func() bool { got = d.trail()[before:]; return len(got) >= len(c.audit) })
	if len(got) != len(c.audit) {
		p.t.Errorf("%s: recorded %q, want %q", page, got, c.audit)
	}
	for i, want := range c.audit[:min(len(c.audit), len(got))] {
		who := token.ID().String() + " from 127.0.0.1: ok"
		switch {
		case i > 0 && c.do == "stop-job": // what it did is of the token that started it
			who = d.tokenOf("").ID().String()
		case i > 0: // the end of a job, which no client asked for
			who = token.ID().String()
		}
		if !strings.HasPrefix(got[i], want) || !strings.Contains(got[i], " by "+who) {
			p.t.Errorf("%s: recorded %q, want %q by %s", page, got[i], want, who)
		}
	}
	p.sound(c.do)
}

// signOut is CON-1: the session ends, also for the pages that the browser still has.
func signOut(t *testing.T, shared *browsertest.Browser) {
	d := open(t)
	d.send("", "orders", "secret body")
	p := d.tabOf(t, shared)
	p.signIn(d.mint("", nil).Reveal())
	p.show("queue?name=orders")
	p.reads("secret body")
	p.follow("Sign out")
	p.at("Sign in")
	p.Eval("history.back()", nil)
	p.WaitFor(`location.search.startsWith("?next=") && document.querySelector("h1")?.textContent === "Sign in"`)
	if used := d.console.Shares()[0].Used; used != 0 {
		t.Errorf("%d sessions are left", used)
	}
	p.sound("sign out")
}
