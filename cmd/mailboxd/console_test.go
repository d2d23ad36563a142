package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestConsoleOutlivesKillOfDaemon is CON-2: a page that is live when the daemon on disk is killed says that it is offline, leads to the
// login when the daemon is back, and then shows what was sent before and after the kill.
func TestConsoleOutlivesKillOfDaemon(t *testing.T) {
	volume.InFull(t)
	dir, listen := t.TempDir(), "--listen=127.0.0.1:"+proctest.FreePort(t)
	send := func(c *child, body string) {
		t.Helper()
		c.must("/v1/send", fmt.Sprintf(`{"topic":"orders","idem_key":%q,"payload_b64":%q}`, body, base64.StdEncoding.EncodeToString([]byte(body))))
	}
	browser := browsertest.Start(t)
	shows := func(bodies ...string) {
		t.Helper()
		for _, body := range bodies {
			browser.WaitFor(fmt.Sprintf(`document.getElementById("messages")?.textContent.includes(%q)`, body))
		}
	}
	signIn := func(c *child) {
		t.Helper()
		browser.WaitFor(`document.readyState === "complete" && document.activeElement.id === "token"`)
		browser.Paste(c.token)
		browser.Type("\n")
	}
	first := startChildWith(t, dir, nil, listen)
	send(first, "first body")
	browser.Open(first.base + "/console/queue?name=orders")
	signIn(first)
	shows("first body")
	send(first, "second body") // which comes as an update
	shows("second body")
	first.kill()
	browser.WaitFor(`document.getElementById("offline").textContent.includes("The daemon does not answer")`)
	shows("first body", "second body")
	second := startChildWith(t, dir, nil, listen)
	browser.WaitFor(`document.getElementById("offline").textContent.includes("The session has ended")`)
	browser.Click("#offline a", "Sign in again")
	signIn(second)
	shows("first body", "second body")
	send(second, "third body")
	shows("third body")
	second.kill()
	for _, problem := range browser.Problems() {
		if !strings.Contains(problem, "net::ERR_") && !strings.Contains(problem, "status of 401") {
			t.Error(problem)
		}
	}
}
