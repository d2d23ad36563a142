package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

func inGroup(name string) func(*driver.Outgoing) {
	return func(out *driver.Outgoing) { out.Group = name }
}

// TestGroupsAreListedByBacklog is CON-2.
func TestGroupsAreListedByBacklog(t *testing.T) {
	d := open(t)
	for i := range 7 {
		d.send("", "orders", "x", inGroup(map[bool]string{true: "quiet", false: "noisy & co"}[i == 3]))
	}
	d.send("", "orders", "x")
	d.work("", "orders", "w", 1)
	b := d.logIn(d.mint("", nil))
	b.expect(b.get("queue?name=orders"), 200, `href="groups?queue=orders"`)
	a := b.get("groups?queue=orders")
	b.expect(a, 200, "All that wait: 3 groups.", `<td class="number ready">5</td>`, `href="queue?group=noisy+%26+co&amp;name=orders"`, "without a group")
	if noisy, quiet := strings.Index(a.body, "noisy"), strings.Index(a.body, ">quiet<"); noisy < 0 || quiet < noisy {
		t.Errorf("the group with most messages is not first: %s", main(a.body))
	}
	b.lacks(a, "Count further")
	b.expect(b.get("groups?queue=missing"), 200, "missing")
	b.expect(b.get("groups"), 400)
}

// TestGroupsSayHowManyWereCounted is CON-2.
func TestGroupsSayHowManyWereCounted(t *testing.T) {
	d := open(t)
	d.console = console.New(console.Options{Broker: d.broker, LookTime: 1})
	for i := range 600 {
		d.send("", "orders", "x", inGroup(fmt.Sprint("g", i/500)))
	}
	b := d.logIn(d.mint("", nil))
	a := b.get("groups?queue=orders")
	b.expect(a, 200, "the first 500 of 600 ready. Others may have more.", `href="groups?look=further&amp;queue=orders"`)
	b.lacks(a, ">g1<")
	b.expect(b.get("groups?queue=orders&look=further"), 200, ">g1<", "All that wait: 2 groups.")
}

// TestNewestMessagesComeFirst is CON-2: those that arrive while many wait are on the first page.
func TestNewestMessagesComeFirst(t *testing.T) {
	d := open(t)
	for i := range 60 {
		d.send("", "orders", fmt.Sprintf("message %d.", i))
	}
	b := d.logIn(d.mint("", nil))
	b.lacks(b.get("queue?name=orders"), "message 59.")
	a := b.get("queue?name=orders&order=newest")
	b.expect(a, 200, "The newest that match: 50 ready messages.", `<option value="newest" selected>`, "message 59.", "message 10.")
	b.lacks(a, "message 9.", "Go on")
	if strings.Index(a.body, "message 59.") > strings.Index(a.body, "message 58.") {
		t.Error("the newest is not first")
	}
	b.expect(b.get("queue?name=orders&order=newest&text=message+3."), 200, "message 3.", "The newest that match: 1 ready message.")
	b.expect(b.get("queue?name=orders&order=newest&state=delayed"), 200, "among ready and among dead messages only")
	d.deadLetter("", "dying", "old", "first")
	d.deadLetter("", "dying", "new", "second")
	a = b.get("queue?name=dying&order=newest&reason=fatal")
	b.expect(a, 200, `<option value="fatal" selected>`, "The newest that match: 2 dead messages.")
	if strings.Index(a.body, "<code>new</code>") > strings.Index(a.body, "<code>old</code>") {
		t.Errorf("the latest death is not first: %s", main(a.body))
	}
}

func TestQueueShowsLimitsOfGroupsAndAgeing(t *testing.T) {
	d := open(t)
	c := d.caller("")
	if err := c.Configure(t.Context(), "limited", driver.Config{FairGroups: true, GroupLimits: "in-flight=3,rate=10"}); err != nil {
		t.Fatal(err)
	}
	d.send("", "plain", "x")
	b := d.logIn(d.mint("", nil))
	a := b.get("queue?name=limited")
	b.expect(a, 200, "group limits", "in-flight=3,rate=10")
	b.lacks(a, "priorities rise every")
	b.expect(b.get("queue?name=plain"), 200, "priorities rise every", "1m0s")
}
