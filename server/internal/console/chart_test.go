package console_test

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestChartsTellLastHour(t *testing.T) {
	d := open(t)
	d.send("", "orders", "x")
	b := d.logIn(d.mint("", nil))
	b.expect(b.get("queue?name=orders"), 200, "Charts appear when")
	now := time.Now()
	for i := range 4 {
		d.send("", "orders", "x")
		d.broker.Sample(t.Context(), now.Add(time.Duration(i-4)*broker.HistoryEvery))
	}
	for _, page := range []string{"queue?name=orders", ""} {
		a := b.get(page)
		b.expect(a, 200, `role="img" aria-label="Messages in the last hour. ready: now 5, at most 5; delayed: now 0`, "sent: now 0.1 per second")
		_, svg, _ := strings.Cut(a.body, "<svg")
		svg, _, ok := strings.Cut("<svg"+svg, "</svg>")
		if err := xml.Unmarshal([]byte(svg+"</svg>"), new(struct{})); !ok || err != nil {
			t.Errorf("%s: %v: %s", page, err, svg)
		}
		if strings.Contains(a.body, `<path class="line delayed"`) || !strings.Contains(a.body, `<path class="line ready"`) {
			t.Errorf("%s: a line that is 0 hides others, or one that is not is missing", page)
		}
	}
	looker := d.logIn(d.mint("", []capability.Operation{capability.OpPeek}, capability.Queue("orders")))
	looker.lacks(looker.get("queue?name=orders"), "<svg", "Last hour")
	tenant := d.logIn(d.mint("b", nil))
	tenant.lacks(tenant.get(""), "<svg")
}

func TestChartIsDrawnInBrowser(t *testing.T) {
	d := open(t)
	d.pastHour()
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.show("queue?name=orders")
	p.WaitFor(`document.querySelectorAll(".chart svg path").length >= 7 && [...document.querySelectorAll(".chart svg path")].some((l) => l.getTotalLength() > 300)`)
	d.send("", "orders", "x")
	d.broker.Sample(t.Context(), time.Now().Add(broker.HistoryEvery))
	p.WaitFor(`document.querySelector("#history").textContent.includes("ready 1")`)
	p.sound("charts")
}
