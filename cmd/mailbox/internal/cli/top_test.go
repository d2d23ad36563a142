package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest/daemontest"
)

var colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// screen returns what the view draws, without colours.
func screen(v *topView) string { return colours.ReplaceAllString(strings.Join(v.lines(), "\n"), "") }

// expect reports texts that the view does not draw.
func expect(t *testing.T, v *topView, texts ...string) {
	t.Helper()
	drawn := screen(v)
	for _, text := range texts {
		if !strings.Contains(drawn, text) {
			t.Errorf("%q is missing in\n%s", text, drawn)
		}
	}
}

// after passes the results of commands to the view until it waits for the next tick.
func after(v *topView, command tea.Cmd) {
	for command != nil && v.looking {
		_, command = v.Update(command())
	}
}

var topKeys = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "down": {Code: tea.KeyDown}, "end": {Code: tea.KeyEnd},
	"space": {Code: tea.KeySpace, Text: " "}, "backspace": {Code: tea.KeyBackspace},
}

// press presses keys, and lets the view look.
func press(v *topView, keys ...string) {
	for _, key := range keys {
		m, special := topKeys[key]
		if !special {
			m = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		}
		_, command := v.Update(m)
		after(v, command)
	}
}

// waiting returns a view that waits for a sample, which the test makes up.
func waiting(t *testing.T, queues ...string) *topView {
	t.Helper()
	v := newTopView(t.Context(), &api{endpoint: &endpoint{shown: "here"}}, queues, time.Second)
	v.looking = true
	return v
}

func TestTopShowsQueuesMessagesAndOneMessage(t *testing.T) {
	daemon := daemontest.Start(t)
	token, err := capability.Parse(daemon.Token)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(&endpoint{base: daemon.HTTP, shown: "here"}, token)
	defer a.close()
	send := func(queue, body string, more map[string]any) {
		t.Helper()
		request := map[string]any{"topic": queue, "payload_b64": []byte(body), "idem_key": body}
		for name, value := range more {
			request[name] = value
		}
		if err := a.call(t.Context(), apiRequest{path: "/v1/send", body: request, creates: true}, nil); err != nil {
			t.Fatal(err)
		}
	}
	send("invoices", "one", nil)
	send("orders", `{"total":12.50,"text":"\u001b[2J"}`, map[string]any{"attrs": map[string]string{"shop": "bern"}})
	send("orders", "later", map[string]any{"delay_ms": 3_600_000})

	v := newTopView(t.Context(), a, nil, time.Second)
	v.Update(tea.WindowSizeMsg{Width: 100, Height: 20})
	v.looking = false
	after(v, v.look())
	expect(t, v, "mailbox at here, every 1s", "› invoices", "  orders", "2 queues, by name")
	press(v, "s")
	expect(t, v, "2 queues, by ready")
	press(v, "s", "s", "s", "s", "/", "o", "r")
	expect(t, v, "filter: or█", "› orders")
	press(v, "enter")
	expect(t, v, `1 queue with "or", by name`)
	press(v, "enter")
	expect(t, v, "1 ready", "1 delayed", "[ready]", `{"total":12.50`)
	press(v, "enter")
	expect(t, v, " ready in orders", "shop             bern", `  "total": 12.50,`)
	if drawn := strings.Join(v.lines(), "\n"); strings.Contains(drawn, "\x1b[2J") {
		t.Errorf("a body controls the terminal: %q", drawn)
	}
	press(v, "esc", "tab")
	expect(t, v, "[delayed]", "in 59m", "later")
	press(v, "esc", "esc")
	expect(t, v, "2 queues, by name")

	if err := a.call(t.Context(), apiRequest{path: "/v1/queues/delete", body: queueBody{"orders"}}, nil); err != nil {
		t.Fatal(err)
	}
	v.selected = "orders"
	press(v, "enter")
	if v.queue != "" || slices.Contains(v.shown, "orders") {
		t.Errorf("a deleted queue is shown: %q of %v", v.queue, v.shown)
	}
}

func TestTopWithoutPermissionToPeekSaysSo(t *testing.T) {
	v := waiting(t, "orders")
	v.open("orders")
	v.take(&topSample{
		topRequest: topRequest{visible: []string{"orders"}, page: true, state: driver.StateReady},
		counts:     map[string]statsBody{"orders": {Ready: 7}}, denied: &driver.Error{Code: driver.ErrForbidden, Op: "peek"},
	})
	expect(t, v, "7 ready", explain(&driver.Error{Code: driver.ErrForbidden, Op: "peek"}).sentence)
}

// A sample of many queues counts those on the screen, and others while there is time.
func TestTopCountsManyQueuesInTurns(t *testing.T) {
	v := waiting(t)
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("q%03d", i))
	}
	v.take(&topSample{topRequest: topRequest{list: true}, at: time.Now(), names: names})
	expect(t, v, "1000 queues, 0 of 1000 counted")
	counted := func(names ...string) *topSample {
		s := &topSample{topRequest: topRequest{visible: v.page()}, counts: make(map[string]statsBody)}
		for _, name := range names {
			s.counts[name] = statsBody{Ready: 1}
		}
		return s
	}
	v.take(counted(append(slices.Clone(v.page()), "q100", "q101")...))
	if v.turn != 2 {
		t.Errorf("the next turn begins at %d, want 2", v.turn)
	}
	expect(t, v, fmt.Sprintf("%d of 1000 counted", len(v.page())+2))
	v.looking = true
	press(v, "end")
	expect(t, v, "› q999")
}

func TestTopRatesAreThoseOfTheHistory(t *testing.T) {
	v := waiting(t, "orders")
	history := historyBody{EveryMS: 10_000, Points: []historyPoint{
		{statsBody: statsBody{Ready: 8}, Sent: 100}, {statsBody: statsBody{Ready: 3}, Sent: 250, Acked: 5, OldestReadyMS: 130_000},
	}}
	s := topSample{
		topRequest: topRequest{visible: []string{"orders"}, measure: true}, at: time.Now(),
		counts: map[string]statsBody{"orders": {Ready: 3, Paused: true}}, histories: map[string]historyBody{"orders": history},
	}
	v.take(&s)
	expect(t, v, "orders (paused)", "2m      25     0.5")
	v.queue = "orders"
	expect(t, v, "waiting ", "█▃ 3, most 8", "▃█ 25, most 25", " █ 0.5, most 0.5")
	v.queue = ""
	v.Update(tea.WindowSizeMsg{Width: 60, Height: 10})
	for line := range strings.Lines(screen(v)) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 60 {
			t.Errorf("a line of %d characters on a screen of 60: %q", n, line)
		}
	}
}

func TestTopTellsThrottledMessages(t *testing.T) {
	v := waiting(t, "orders")
	v.take(&topSample{topRequest: topRequest{visible: []string{"orders"}}, counts: map[string]statsBody{"orders": {Ready: 3, Throttled: 2}}})
	v.looking = true
	v.Update(tea.WindowSizeMsg{Width: 100, Height: 10})
	expect(t, v, "orders (2 throttled)")
	v.queue = "orders"
	expect(t, v, "orders 2 throttled  3 ready")
}

func TestTopShowsWorkersOfQueue(t *testing.T) {
	v := waiting(t, "orders")
	v.open("orders")
	v.looking = true
	press(v, "w")
	v.looking = true
	now := time.Now()
	s := topSample{
		topRequest: topRequest{visible: []string{"orders"}, page: true, state: v.state, receivers: true}, at: now, counts: map[string]statsBody{"orders": {InFlight: 2}},
		workers: []workerView{
			{Queue: "orders", Name: "billing\x1b[31m@host", Seen: now, Waiting: 1},
			{Queue: "orders", Name: "mails@host", Seen: now.Add(-2 * time.Minute), InFlight: 2, Acked: 1200, Failed: 3, Held: []heldView{{ID: "m-1", TakenAt: now.Add(-3 * time.Minute)}}},
		},
	}
	v.take(&s)
	v.looking = true
	v.Update(tea.WindowSizeMsg{Width: 110, Height: 24})
	expect(t, v, "[workers]", "mails@host", "1200", "m-1 3m")
	if strings.Contains(screen(v), "\x1b[31m@host") {
		t.Error("the name of a worker reaches the terminal as it is")
	}
	v.Update(tea.WindowSizeMsg{Width: 60, Height: 12})
	for line := range strings.Lines(screen(v)) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 60 {
			t.Errorf("a line of %d characters on a screen of 60: %q", n, line)
		}
	}
	v.take(&topSample{topRequest: s.topRequest, at: now, counts: s.counts})
	expect(t, v, "no worker was seen")
	v.looking = true
	press(v, "w")
	expect(t, v, "[ready]", "no message to show")
}

func TestTopOutlivesDaemonButNotRefusal(t *testing.T) {
	v := waiting(t, "orders")
	v.take(&topSample{counts: map[string]statsBody{"orders": {Ready: 30}}})
	if v.take(&topSample{err: &driver.Error{Code: driver.ErrUnavailable, Detail: "gone"}}) == nil || v.fatal != nil {
		t.Errorf("without a daemon it ends: %v", v.fatal)
	}
	expect(t, v, "gone", "30")
	v.take(&topSample{err: &driver.Error{Code: driver.ErrForbidden}})
	if !errors.Is(v.fatal, driver.ErrForbidden) {
		t.Errorf("a refused token does not end it: %v", v.fatal)
	}
	if _, end := v.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); end == nil {
		t.Error("q does not end it")
	}
}

func TestTopHeldDoesNotLook(t *testing.T) {
	v := waiting(t, "orders")
	v.take(&topSample{})
	press(v, "space")
	expect(t, v, "held; space goes on")
	if _, next := v.Update(topTick{v.generation}); next != nil {
		t.Error("it looks while it is held")
	}
	if _, next := v.Update(topKeys["space"]); next == nil {
		t.Error("it does not go on")
	}
}
