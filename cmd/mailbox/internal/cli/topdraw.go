package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// topFrame is how many lines of the screen are not queues or messages of a list.
const topFrame = 6

// topInks are the colours of the console (docs/console.md), for light and dark backgrounds.
var topInks = map[string][2]string{
	"accent":                     {"#0f766e", "#5eead4"},
	string(driver.StateReady):    {"#1d4ed8", "#93b4ff"},
	string(driver.StateDelayed):  {"#6d28d9", "#c4a8ff"},
	string(driver.StateInFlight): {"#92400e", "#fbbf60"},
	string(driver.StateDead):     {"#b91c1c", "#ff9c94"},
	"quiet":                      {"#57606a", "#a0a8b0"},
}

// ink colours text.
func (v *topView) ink(name, text string) string {
	shade := topInks[name][1]
	if v.light {
		shade = topInks[name][0]
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(shade)).Render(text)
}

func bold(text string) string { return lipgloss.NewStyle().Bold(true).Render(text) }

// View draws the view.
func (v *topView) View() tea.View {
	view := tea.NewView(strings.Join(v.lines(), "\n"))
	view.AltScreen = true
	view.WindowTitle = "mailbox top"
	return view
}

// lines returns the lines to draw: as many as the screen has at most.
func (v *topView) lines() []string {
	var body []string
	keys := "↑↓ select  enter open  / filter  s order  space hold  q quit"
	switch {
	case v.message != nil:
		body, keys = v.messageLines(), "esc back  space hold  q quit"
	case v.queue != "":
		body, keys = v.pageLines(), "tab state  w workers  ↑↓ select  enter show  esc back  space hold  q quit"
	default:
		body = v.listLines()
	}
	room := max(1, v.height-2)
	body = body[:min(len(body), room)]
	for len(body) < room {
		body = append(body, "")
	}
	return append(body, v.statusLine(), v.ink("quiet", printable([]byte(keys), v.width)))
}

// statusLine says what is wrong, or which part of the list is shown.
func (v *topView) statusLine() string {
	switch {
	case v.failed != nil:
		return v.ink(string(driver.StateDead), printable([]byte(explain(v.failed).sentence), v.width))
	case v.typing:
		return "filter: " + printable([]byte(v.filter), v.width-10) + "█"
	case v.still:
		return v.ink(string(driver.StateInFlight), "held; space goes on")
	case v.queue != "":
		return ""
	}
	counted := 0
	for _, row := range v.rows {
		if row.counted {
			counted++
		}
	}
	text := plural(len(v.shown), "queue")
	if v.filter != "" {
		text += fmt.Sprintf(" with %q", v.filter)
	}
	if counted < len(v.rows) {
		text += fmt.Sprintf(", %d of %d counted", counted, len(v.rows))
	}
	return v.ink("quiet", printable([]byte(text+", by "+topOrders[v.order].name), v.width))
}

// listLines draws the list of queues.
func (v *topView) listLines() []string {
	title := fmt.Sprintf("mailbox at %s, every %v", v.api.endpoint.shown, v.interval)
	rates := v.width >= 72
	heads := []string{"READY", "DELAYED", "IN FLIGHT", "DEAD"}
	if rates {
		heads = append(heads, "OLDEST", "SENT/S", "DONE/S")
	}
	name := v.width - 2
	header := ""
	for _, head := range heads {
		name -= 1 + max(7, len(head))
		header += " " + padded(head, max(7, len(head)), true)
	}
	name = max(name, 8)
	lines := []string{bold(printable([]byte(title), v.width)), "", v.ink("quiet", "  "+padded("QUEUE", name, false)+header)}
	shown := v.page()
	if len(shown) == 0 {
		return append(lines, v.ink("quiet", "  no queue to show"))
	}
	for _, queue := range shown {
		row := v.rows[queue]
		label := queue
		if row.Paused {
			label += " (" + pausedWord + ")"
		}
		if row.Throttled > 0 {
			label += " (" + shortNumber(row.Throttled) + " " + throttledWord + ")"
		}
		line := v.marked(queue == v.selected, padded(printable([]byte(label), name), name, false))
		for i, n := range []int{row.Ready, row.Delayed, row.InFlight, row.Dead} {
			text := ""
			if row.counted {
				text = shortNumber(n)
			}
			line += " " + v.stateInk(topStates[i], n, padded(text, max(7, len(heads[i])), true))
		}
		if last := row.history.last(); rates && len(row.history.Points) > 0 {
			oldest := ""
			if last.OldestReadyMS > 0 {
				oldest = shortSpan(time.Duration(last.OldestReadyMS) * time.Millisecond)
			}
			line += " " + padded(oldest, 7, true)
			line += " " + padded(shortRate(row.history.perSecond(last.Sent)), 7, true) + " " + padded(shortRate(row.history.perSecond(last.Acked)), 7, true)
		}
		lines = append(lines, line)
	}
	return lines
}

// marked returns the beginning of a line, which may be the selected one.
func (v *topView) marked(selected bool, text string) string {
	if selected {
		return v.ink("accent", "› ") + bold(text)
	}
	return "  " + text
}

// stateInk colours a number of messages in a state, unless it is 0.
func (v *topView) stateInk(state driver.State, n int, text string) string {
	if n == 0 {
		return v.ink("quiet", text)
	}
	return v.ink(string(state), text)
}

// pageLines draws one queue and its messages in a state.
func (v *topView) pageLines() []string {
	row := v.rows[v.queue]
	if row == nil {
		row = &topRow{}
	}
	title := bold(printable([]byte(v.queue), v.width/2))
	if row.Paused {
		title += v.ink(string(driver.StateInFlight), " "+pausedWord)
	}
	if row.Throttled > 0 {
		title += v.ink(string(driver.StateInFlight), " "+shortNumber(row.Throttled)+" "+throttledWord)
	}
	for i, n := range []int{row.Ready, row.Delayed, row.InFlight, row.Dead} {
		title += "  " + v.stateInk(topStates[i], n, shortNumber(n)+" "+string(topStates[i]))
	}
	lines := append([]string{title, ""}, v.charts(&row.history)...)
	tabs := ""
	for _, state := range topStates {
		if state == v.state && !v.receivers {
			tabs += v.ink(string(state), "["+string(state)+"]") + " "
		} else {
			tabs += " " + string(state) + "  "
		}
	}
	if v.receivers {
		return v.workerLines(append(lines, tabs+v.ink("accent", "[workers]")))
	}
	lines = append(lines, tabs+" workers", v.ink("quiet", "  "+padded("ID", 26, false)+"   AGE  DELIVERED             BODY"))
	room := max(1, v.height-2-len(lines))
	switch first := v.line / room * room; {
	case v.denied != nil:
		return append(lines, printable([]byte(explain(v.denied).sentence), v.width))
	case len(v.messages) == 0:
		return append(lines, v.ink("quiet", "  no message to show"))
	default:
		for i, m := range v.messages[first:min(first+room, len(v.messages))] {
			lines = append(lines, v.messageLine(&m, first+i == v.line))
		}
		return lines
	}
}

// workerLines adds the workers of a queue.
func (v *topView) workerLines(lines []string) []string {
	nameWidth := min(34, max(8, v.width-34))
	lines = append(lines, v.ink("quiet", printable([]byte("  "+padded("WORKER", nameWidth, false)+"  SEEN WAITS HOLDS   DONE FAILED  LONGEST"), v.width)))
	room := max(1, v.height-2-len(lines))
	first := v.line / room * room
	switch {
	case v.denied != nil:
		return append(lines, printable([]byte(explain(v.denied).sentence), v.width))
	case len(v.workers) == 0:
		return append(lines, v.ink("quiet", "  no worker was seen in the last 5 minutes"))
	}
	now := time.Now()
	for i := range v.workers[first:min(first+room, len(v.workers))] {
		w := &v.workers[first+i]
		line := padded(w.title(nameWidth), nameWidth, false) + " " + padded(shortSpan(now.Sub(w.Seen)), 5, true) + " " + padded(shortNumber(w.Waiting), 5, true) + " " +
			v.stateInk(driver.StateInFlight, w.InFlight, padded(shortNumber(w.InFlight), 5, true)) + " " + padded(shortNumber(w.Acked), 6, true) + " " +
			v.stateInk(driver.StateDead, w.Failed+w.Expired, padded(shortNumber(w.Failed+w.Expired), 6, true))
		if rest := v.width - nameWidth - 36; rest > 10 {
			line += "  " + printable([]byte(w.longest(now)), rest)
		}
		lines = append(lines, v.marked(first+i == v.line, line))
	}
	return lines
}

// charts draws the last points of a queue's history.
func (v *topView) charts(h *historyBody) []string {
	points := h.Points[max(0, len(h.Points)-max(10, v.width-30)):]
	if len(points) < 2 {
		return nil
	}
	var lines []string
	for _, chart := range []struct {
		name string
		of   func(historyPoint) float64
		text func(float64) string
	}{
		{"waiting", func(p historyPoint) float64 { return float64(p.waiting()) }, func(n float64) string { return shortNumber(int(n)) }},
		{"sent/s", func(p historyPoint) float64 { return h.perSecond(p.Sent) }, shortRate},
		{"done/s", func(p historyPoint) float64 { return h.perSecond(p.Acked) }, shortRate},
	} {
		values := make([]float64, 0, len(points))
		for _, p := range points {
			values = append(values, chart.of(p))
		}
		lines = append(lines, fmt.Sprintf("%-8s%s %s, most %s", chart.name, v.ink("accent", bars(values)), chart.text(values[len(values)-1]), chart.text(slices.Max(values))))
	}
	return append(lines, "")
}

// bars draws values beside each other, the highest in full height.
func bars(values []float64) string {
	heights := []rune(" ▁▂▃▄▅▆▇█")
	most := slices.Max(values)
	drawn := make([]rune, 0, len(values))
	for _, value := range values {
		height := 0
		if value > 0 {
			height = 1 + int(value/most*float64(len(heights)-2))
		}
		drawn = append(drawn, heights[height])
	}
	return string(drawn)
}

// messageLine draws a message of a list.
func (v *topView) messageLine(m *messageView, selected bool) string {
	about := m.Group
	switch {
	case m.Reason != "":
		about = m.Reason
	case m.DueAt != nil:
		about = "in " + shortSpan(time.Until(*m.DueAt))
	}
	age := ""
	if m.EnqueuedAt != nil {
		age = shortSpan(time.Since(*m.EnqueuedAt))
	}
	text := padded(m.ID, 26, false) + " " + padded(age, 5, true) + "  " + padded(fmt.Sprintf("%d×", m.Deliveries), 4, false) + " " +
		padded(printable([]byte(about), 14), 14, false) + "   "
	return v.marked(selected, text+printable(m.body(), max(8, v.width-utf8.RuneCountInString(text)-2)))
}

// messageLines draws one message.
func (v *topView) messageLines() []string {
	m := v.message
	lines := []string{bold(m.ID) + "  " + v.ink(m.State, m.State) + " in " + printable([]byte(m.Queue), v.width/2), ""}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, v.ink("quiet", padded(name, 16, false))+" "+printable([]byte(value), max(8, v.width-18)))
		}
	}
	add("sent", stamp(m.EnqueuedAt))
	add("deliveries", plainNumber(m.Deliveries))
	add("first received", stamp(m.FirstReceivedAt))
	due := "due"
	if m.State == string(driver.StateInFlight) {
		due = "held until"
	}
	add(due, stamp(m.DueAt))
	add("group", m.Group)
	add("priority", positive(m.Priority))
	add("key", m.Key)
	add("reply to", m.ReplyTo)
	add("correlation id", m.CorrelationID)
	add("died", stamp(m.DeadAt))
	add("reason", m.Reason)
	add("error type", m.ErrorType)
	add("last error", m.LastError)
	for _, name := range sortedKeys(m.Attributes) {
		add(printable([]byte(name), 16), m.Attributes[name])
	}
	if m.Damaged {
		lines = append(lines, v.ink(string(driver.StateDead), "its body is damaged"))
	}
	body := m.body()
	var indented bytes.Buffer
	if json.Indent(&indented, body, "", "  ") == nil {
		body = indented.Bytes()
	}
	lines = append(lines, "")
	for text := range bytes.SplitSeq(body, []byte("\n")) {
		lines = append(lines, printable(text, v.width))
	}
	return lines
}

// padded returns text in a column.
func padded(text string, width int, right bool) string {
	padding := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if right {
		return padding + text
	}
	return text + padding
}

// shortNumber returns a number in six characters at most: 99999, 120k, 3.4M.
func shortNumber(n int) string {
	switch {
	case n < 100_000:
		return plainNumber(n)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1fG", float64(n)/1e9)
}

// shortRate returns a rate: 0, 0.3, 12.
func shortRate(rate float64) string {
	if rate > 0 && rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return shortNumber(int(rate))
}

// shortSpan returns a time in its largest unit: 12s, 3m, 2h, 5d.
func shortSpan(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
