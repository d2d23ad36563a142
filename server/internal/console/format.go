package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// The states, in the order in which pages show them.
var states = []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead}

// stateClass is the class of a state: in_flight for in flight.
func stateClass(s driver.State) string { return strings.ReplaceAll(string(s), " ", "_") }

func stateBadge(s driver.State) h.Node {
	return h.Span(h.Class("state "+stateClass(s)), h.Text(string(s)))
}

// countOf returns the number of messages in a state.
func countOf(stats *driver.Stats, s driver.State) int {
	switch s {
	case driver.StateReady:
		return stats.Ready
	case driver.StateDelayed:
		return stats.Delayed
	case driver.StateInFlight:
		return stats.InFlight
	}
	return stats.Dead
}

// number returns 1,234,567.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// count returns a number with its noun: 1 message, 2 messages.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// numberCell is a cell with a number; a zero is quiet.
func numberCell(n int, class string) h.Node {
	if n == 0 {
		class = "zero"
	}
	return h.Td(h.Class("number "+class), h.Text(number(n)))
}

// rateCell is a cell with messages a second; a zero is quiet.
func rateCell(perSecond float64) h.Node {
	switch {
	case perSecond <= 0:
		return numberCell(0, "")
	case perSecond < 10:
		return h.Td(h.Class("number"), h.Text(strconv.FormatFloat(perSecond, 'f', 1, 64)))
	}
	return numberCell(int(perSecond), "")
}

// exact is the time in UTC that titles have.
const exact = "2006-01-02 15:04:05.000 UTC"

// moment shows a time: the script replaces it by the time in the viewer's zone.
func moment(t time.Time) h.Node {
	if t.IsZero() {
		return h.Text("–")
	}
	t = t.UTC()
	return h.Time(h.DateTime(t.Format(time.RFC3339Nano)), h.Data("local", ""), h.TitleAttr(t.Format(exact)), h.Text(t.Format("2006-01-02 15:04:05 UTC")))
}

// machineTime matches the times in texts that other packages make.
var machineTime = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})`)

// timed shows a text that the daemon made: its times as moment does.
func timed(text string) h.Node {
	var nodes h.Group
	for {
		at := machineTime.FindStringIndex(text)
		if at == nil {
			return append(nodes, h.Text(text))
		}
		found := h.Text(text[at[0]:at[1]])
		if t, err := time.Parse(time.RFC3339Nano, text[at[0]:at[1]]); err == nil {
			found = moment(t)
		}
		nodes = append(nodes, h.Text(text[:at[0]]), found)
		text = text[at[1]:]
	}
}

// ago shows how long ago a time was, or in how long it will be.
func ago(t, now time.Time) h.Node {
	if t.IsZero() {
		return h.Text("–")
	}
	text := "now"
	switch d := now.Sub(t); {
	case d >= time.Second:
		text = span(d) + " ago"
	case d <= -time.Second:
		text = "in " + span(-d)
	}
	t = t.UTC()
	return h.Time(h.DateTime(t.Format(time.RFC3339Nano)), h.TitleAttr(t.Format(exact)), h.Text(text))
}

// span returns a duration in its largest unit.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return strconv.Itoa(int(d/day)) + " d"
	case d >= time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	case d >= time.Minute:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d >= time.Second:
		return strconv.Itoa(int(d/time.Second)) + " s"
	}
	return strconv.Itoa(int(d/time.Millisecond)) + " ms"
}

// shorten cuts a text after n characters.
func shorten(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i] + "…"
		}
		n--
	}
	return text
}

const (
	// maxShownBody bounds the bytes of a body on a page.
	maxShownBody = 64 << 10
	// maxHexBody bounds those that are shown in hexadecimal, which takes four times the room.
	maxHexBody = 4 << 10
	// previewRunes bounds the beginning of a body in a list.
	previewRunes = 80
)

// readable reports whether a body is text.
func readable(body []byte) bool {
	return utf8.Valid(body) && bytes.IndexFunc(body, func(r rune) bool {
		return !unicode.IsPrint(r) && r != '\n' && r != '\r' && r != '\t'
	}) < 0
}

// preview is the beginning of a body in one line.
func preview(body []byte) string {
	cut := body[:min(len(body), 4*previewRunes)]
	for len(cut) < len(body) && len(cut) > 0 && !utf8.Valid(cut) && len(cut) > 4*previewRunes-utf8.UTFMax {
		cut = cut[:len(cut)-1]
	}
	if !readable(cut) {
		return count(len(body), "byte") + " of binary data"
	}
	return shorten(strings.Join(strings.Fields(string(cut)), " "), previewRunes)
}

// showBody shows a body as JSON, as text or in hexadecimal. It changes no number and no order of JSON.
func showBody(body []byte) h.Node {
	if len(body) == 0 {
		return empty("The body is empty.")
	}
	kind, shown, limit := "Text", "", maxShownBody
	var indented bytes.Buffer
	switch {
	case len(body) <= maxShownBody && json.Indent(&indented, body, "", "  ") == nil && readable(body):
		kind, shown = "JSON", indented.String()
	case readable(body):
		cut := body[:min(len(body), maxShownBody)]
		shown = strings.ToValidUTF8(string(cut), "")
	default:
		kind, limit = "Binary", maxHexBody
		shown = hex.Dump(body[:min(len(body), maxHexBody)])
	}
	note := kind + ", " + count(len(body), "byte")
	if len(body) > limit {
		note += "; the first " + number(limit) + " are shown"
	}
	return h.Group{h.P(h.Class("quiet"), h.Text(note)), h.Pre(h.Class("body"), h.TabIndex("0"), h.Aria("label", "Body"), h.Text(shown))}
}
