package console_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// rows returns the texts of the rows of a table, with | between cells.
func rows(page string) (all []string) {
	_, page, _ = strings.Cut(page, "<tbody>")
	page, _, _ = strings.Cut(page, "</tbody>")
	for row := range strings.SplitSeq(page, "</tr>") {
		row = strings.ReplaceAll(row, "</td>", "|")
		if row = regexp.MustCompile("<[^>]*>").ReplaceAllString(row, ""); row != "" {
			all = append(all, row)
		}
	}
	return all
}

// TestListOfQueuesTellsAgesAndRates is CON-2.
func TestListOfQueuesTellsAgesAndRates(t *testing.T) {
	d := open(t)
	d.send("", "idle", "x")
	if _, err := d.caller("").Purge(t.Context(), "idle"); err != nil {
		t.Fatal(err)
	}
	c := d.caller("")
	if err := c.Configure(t.Context(), "orders", driver.Config{FairGroups: true, GroupLimits: "in-flight=1"}); err != nil {
		t.Fatal(err)
	}
	d.send("", "orders", "x", func(out *driver.Outgoing) { out.Group = "shop" })
	d.aged.Store(int64(3 * time.Minute))
	for i := range 3 {
		d.broker.Sample(t.Context(), time.Now().Add(time.Duration(i-3)*broker.HistoryEvery))
	}
	for range 40 {
		d.send("", "orders", "x", func(out *driver.Outgoing) { out.Group = "shop" })
	}
	got := d.work("", "orders", "billing", 1)
	if err := c.Ack(t.Context(), "orders", []string{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	d.work("", "orders", "billing", 1)
	d.broker.Sample(t.Context(), time.Now())
	b := d.logIn(d.mint("", nil))
	for _, page := range []string{"", "queues?sort=ready"} {
		a := b.get(page)
		b.expect(a, 200, `aria-label="ready in the last hour, at most 39"`)
		if got, want := rows(a.body)[0], "orders39 throttled|39||0|1|0|3 min|4.0|0.1|"; got != want {
			t.Errorf("%q: got %q, want %q", page, got, want)
		}
	}
	b.expect(b.get(""), 200, "39 of the ready messages are in groups at their limit.")
	b.lacks(b.get("queues?q=idle"), "throttled")
}

// TestListOfQueuesIsSorted is CON-2: by each figure, most first, of the queues that there is time to count.
func TestListOfQueuesIsSorted(t *testing.T) {
	d := open(t)
	for i := range 59 {
		d.send("", fmt.Sprintf("queue-%02d", i), "x")
	}
	d.send("", "queue-07", "x")
	d.send("", "queue-08", "x", func(out *driver.Outgoing) { out.Delay = time.Hour })
	d.work("", "queue-09", "w", 1)
	d.deadLetter("", "queue-59", "x", "boom")
	b := d.logIn(d.mint("", nil))
	for sort, first := range map[string]string{"": "queue-00|1|", "nonsense": "queue-00|1|", "ready": "queue-07|2|", "delayed": "queue-08|1|", "in_flight": "queue-09|0|", "dead": "queue-59|0|"} {
		a := b.get("queues?sort=" + sort)
		if got := rows(a.body); len(got) != 50 || !strings.HasPrefix(got[0], first) {
			t.Errorf("by %q the first of %d rows is %q, want 50 and %q", sort, len(got), got[0], first)
		}
		if sorted := strings.Contains(a.body, `aria-sort="descending"`); sorted != (sort != "" && sort != "nonsense") {
			t.Errorf("by %q: a column is marked: %v", sort, sorted)
		}
	}
	a := b.get("queues?sort=dead&page=2")
	b.expect(a, 200, "Page 2 of 2, 60 queues", `href="queues?page=1&amp;sort=dead"`)
	b.lacks(a, "Sorted are", "queue-59")
	b.expect(b.get("queues?sort=dead&q=queue-5"), 200, `name="sort" value="dead"`, `href="queues?q=queue-5&amp;sort=ready"`, "10 queues")
	d.console = console.New(console.Options{Broker: d.broker, LookTime: 1}) // the least that is looked at
	t.Cleanup(d.console.Close)
	b = d.logIn(d.mint("", nil))
	a = b.get("queues?sort=dead")
	b.expect(a, 200, "Sorted are the first 50 of 60 queues, by name; a filter finds others.")
	b.lacks(a, "queue-59")
}

// TestListOfQueuesIsSortedByAgeAndRate is CON-2.
func TestListOfQueuesIsSortedByAgeAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.send("", "c", "x")
		time.Sleep(time.Minute)
		for _, queue := range []string{"a", "b", "d"} {
			d.send("", queue, "x")
		}
		for range 2 {
			d.broker.Sample(t.Context(), time.Now())
			time.Sleep(broker.HistoryEvery)
		}
		d.send("", "b", "x")
		for _, got := range d.work("", "d", "w", 1) {
			if err := d.caller("").Ack(t.Context(), "d", []string{got.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
		d.broker.Sample(t.Context(), time.Now())
		b := d.logIn(d.mint("", nil))
		for sort, first := range map[string]string{"oldest": "c|", "sent": "b|", "done": "d|"} {
			if got := rows(b.get("queues?sort=" + sort).body); len(got) != 4 || !strings.HasPrefix(got[0], first) {
				t.Errorf("by %s: %q, want %q first of 4", sort, got, first)
			}
		}
	})
}

// TestFilterOpensFieldsThatAreSet is CON-2: rarely used fields are shown when one of them is set, and the limit is that of the list.
func TestFilterOpensFieldsThatAreSet(t *testing.T) {
	d := open(t)
	for i := range 8 {
		d.send("", "orders", fmt.Sprint("message ", i))
	}
	d.deadLetter("", "dying", "x", "boom")
	b := d.logIn(d.mint("", nil))
	for page, opened := range map[string]bool{
		"queue?name=orders": false, "queue?name=orders&text=x&state=ready": false, "queue?name=orders&group=a": true, "queue?name=orders&limit=200": true,
		"queue?name=orders&reason=fatal": true, "dead?queue=dying": false, "dead?queue=dying&reason=fatal": false, "dead?queue=dying&older=1s": true,
	} {
		if got := strings.Contains(b.get(page).body, `<details open="">`); got != opened {
			t.Errorf("%s: the fields are open: %v, want %v", page, got, opened)
		}
	}
	a := b.get("queue?name=orders&limit=5")
	b.expect(a, 200, `<option value="5" selected>5</option>`, "The first 5 messages that match.", `action="queue#messages"`, `#messages">Go on →`)
	if got := strings.Index(a.body, `id="messages"`); got < 0 || got > strings.Index(a.body, `id="history"`) {
		t.Error("the messages are not before the charts")
	}
	b.expect(b.get("queue?name=orders&older=nonsense"), 200, `id="messages"`, "Older than: want")
}

func TestMessageInFlightSaysWhyItHasNoActions(t *testing.T) {
	d := open(t)
	id := d.send("", "orders", "x")
	b := d.logIn(d.mint("", nil))
	b.lacks(b.get("message?queue=orders&id="+id), "It has no actions here")
	d.work("", "orders", "billing", 1)
	a := b.get("message?queue=orders&id=" + id)
	b.expect(a, 200, "It has no actions here: only its receiver can end or change it while the lease lasts.")
	b.lacks(a, `href="confirm`)
}
