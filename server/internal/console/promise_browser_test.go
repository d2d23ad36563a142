package console_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// TestPromisesHoldInBrowser is CON-1 and CON-2: what people do with the console, with and without permission,
// in one Chromium. Each part has a daemon in memory, and pages with cookies of their own.
func TestPromisesHoldInBrowser(t *testing.T) {
	volume.InFull(t)
	shared := browsertest.Start(t)
	for _, part := range []struct {
		name string
		run  func(t *testing.T, shared *browsertest.Browser)
	}{
		{"every change", changeEverything},
		{"signing out", signOut},
		{"readers", readOnly},
		{"tenants", seeTenants},
		{"keyboard", useKeyboard},
		{"search by key", useSlash},
		{"restart", restart},
		{"hidden tab", hideTab},
		{"time zone", otherZone},
		{"frame", frame},
		{"log", readLog},
		{"wide", widen},
		{"accessible", checkEveryState},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, shared) })
	}
}

// tabOf opens a page of a browser, with cookies of its own, and serves the console to it.
func (d *env) tabOf(t *testing.T, shared *browsertest.Browser) *tab {
	t.Helper()
	p := &tab{Browser: shared.Private(t), t: t, address: "127.0.0.1:0"}
	p.start(d)
	t.Cleanup(func() {
		d.console.Close()
		p.stop()
	})
	p.base = p.server.URL + prefix
	p.Resize(1600, 1000, "light")
	return p
}

// another opens one more page of the same server, with cookies of its own.
func (p *tab) another() *tab {
	p.t.Helper()
	other := *p
	other.Browser = p.Private(p.t)
	other.Resize(1600, 1000, "light")
	return &other
}

// renew replaces the handler by one without sessions, as a restart of the daemon does.
func (d *env) renew(options console.Options) {
	d.console.Close()
	options.Broker = d.broker
	d.console = console.New(options)
}

// reads waits until the main part of the page contains each of the texts.
func (p *tab) reads(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		quoted, _ := json.Marshal(text) // strings can be encoded
		p.WaitFor(`document.readyState === "complete" && document.querySelector("main").textContent.includes(` + string(quoted) + `)`)
	}
}

// follow clicks a link or button with a text.
func (p *tab) follow(text string) {
	p.t.Helper()
	p.Click("main a, main button, header button", text)
}

// refused opens a page that is answered with a status, which the browser reports as an error.
func (p *tab) refused(page, status string) {
	p.t.Helper()
	p.Open(p.base + page)
	p.reads(status)
	for _, problem := range p.Problems() {
		if !strings.Contains(problem, "Failed to load resource") {
			p.t.Errorf("%s: %s", page, problem)
		}
	}
}

// fits checks that the page does not scroll sideways.
func (p *tab) fits(name string, width int) {
	p.t.Helper()
	var widest int
	p.Eval("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)", &widest)
	if widest > width {
		p.t.Errorf("%s is %d pixels wide in a window of %d", name, widest, width)
	}
}

// hides checks that no address that the page asked for contains a secret.
func (p *tab) hides(secrets ...string) {
	p.t.Helper()
	for _, address := range p.Addresses() {
		for _, secret := range secrets {
			if secret == "" || strings.Contains(address, secret) {
				p.t.Errorf("address %q contains the secret %q", address, secret)
			}
		}
	}
}

// trail returns the audit log as lines.
func (d *env) trail() (lines []string) {
	d.t.Helper()
	records, damaged, err := d.caller("").Audit(d.t.Context())
	if err != nil || damaged > 0 {
		d.t.Fatal(err, damaged)
	}
	for i := range records {
		r := &records[i]
		lines = append(lines, fmt.Sprintf("%s, queue %q, %d messages, by %s from %s: %s", r.Operation, r.Queue, r.Count, r.TokenID, r.Client, r.Result))
	}
	return lines
}

// reader returns a token that may only read.
func (d *env) reader(tenant string) capability.Token {
	d.t.Helper()
	return d.mint(tenant, []capability.Operation{capability.OpStats, capability.OpPeek}, capability.AnyQueue())
}
