package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

// object writes one value as a line of JSON.
func (s *shell) object(value any) error {
	encoder := json.NewEncoder(s.Stdout)
	encoder.SetEscapeHTML(false)
	return outputError(encoder.Encode(value))
}

// line writes a line of text.
func (s *shell) line(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Stdout, format+"\n", args...)
	return outputError(err)
}

// outputError explains an error of writing the output.
func outputError(err error) error {
	if err == nil {
		return nil
	}
	return &failure{exit: exitFailed, code: "output", cause: err, sentence: fmt.Sprintf("the output cannot be written (%s)", rootCause(err))}
}

// say writes a line of text, or with --json a value.
func (s *shell) say(value any, format string, args ...any) error {
	if s.global.json {
		return s.object(value)
	}
	return s.line(format, args...)
}

// numeric are the headers of columns of numbers, which are aligned to the right.
var numeric = map[string]bool{"READY": true, "DELAYED": true, "IN FLIGHT": true, "DEAD": true, "DELIVERIES": true}

// A table is text in columns. Cells may contain untrusted text: write makes it printable.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the table; the longest cell sets the width of a column.
func (t *table) write(w io.Writer) error {
	lines := make([][]string, 0, 1+len(t.rows))
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		cells := make([]string, len(row))
		for column, cell := range row {
			cells[column] = printable([]byte(cell), 0)
			widths[column] = max(widths[column], utf8.RuneCountInString(cells[column]))
		}
		lines = append(lines, cells)
	}
	var b strings.Builder
	for _, cells := range lines {
		line := ""
		for column, cell := range cells {
			padding := strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell))
			if column > 0 {
				line += "  "
			}
			if numeric[t.header[column]] {
				line += padding + cell
			} else {
				line += cell + padding
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return outputError(err)
}

// A messageView is a message in JSON. Its fields are stable.
type messageView struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	State string `json:"state,omitempty"`
	// Body is set if it is text, BodyB64 otherwise.
	Body            *string           `json:"body,omitempty"`
	BodyB64         []byte            `json:"body_b64,omitempty"`
	Attributes      map[string]string `json:"attributes,omitempty"`
	Key             string            `json:"key,omitempty"`
	Group           string            `json:"group,omitempty"`
	Priority        int               `json:"priority,omitempty"`
	ReplyTo         string            `json:"reply_to,omitempty"`
	CorrelationID   string            `json:"correlation_id,omitempty"`
	Deliveries      int               `json:"deliveries"`
	EnqueuedAt      *time.Time        `json:"enqueued_at,omitempty"`
	FirstReceivedAt *time.Time        `json:"first_received_at,omitempty"`
	DueAt           *time.Time        `json:"due_at,omitempty"`
	LastError       string            `json:"last_error,omitempty"`
	Reason          string            `json:"reason,omitempty"`
	ErrorType       string            `json:"error_type,omitempty"`
	Cause           string            `json:"cause,omitempty"`
	DeadAt          *time.Time        `json:"dead_at,omitempty"`
	Redrives        int               `json:"redrives,omitempty"`
	Damaged         bool              `json:"damaged,omitempty"`
	Receipt         string            `json:"receipt,omitempty"`
}

func (v *messageView) setBody(body []byte) {
	if utf8.Valid(body) {
		text := string(body)
		v.Body = &text
		return
	}
	v.BodyB64 = body
}

// body returns the body of the message, in either form.
func (v *messageView) body() []byte {
	if v.Body != nil {
		return []byte(*v.Body)
	}
	return v.BodyB64
}

func viewOf(queue string, d *driver.Delivery) messageView {
	v := messageView{
		ID: d.ID, Queue: queue, Attributes: d.Attributes, Group: d.Group, ReplyTo: d.ReplyTo, CorrelationID: d.CorrelationID, Priority: d.Priority,
		Deliveries: d.Deliveries, EnqueuedAt: timeOf(d.EnqueuedAt), FirstReceivedAt: timeOf(d.FirstReceivedAt),
		LastError: d.LastError, Receipt: d.Receipt.Handle,
	}
	v.setBody(d.Body)
	return v
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// peekedBody is a peeked message in the HTTP API.
type peekedBody struct {
	MessageID       string            `json:"msg_id"`
	Queue           string            `json:"topic"`
	State           string            `json:"state"`
	IdemKey         string            `json:"idem_key"`
	Attributes      map[string]string `json:"attrs"`
	Payload         []byte            `json:"payload_b64"`
	Damaged         bool              `json:"damaged"`
	Attempt         int               `json:"attempt"`
	Group           string            `json:"group"`
	Priority        int               `json:"priority"`
	ReplyTo         string            `json:"reply_to"`
	CorrelationID   string            `json:"correlation_id"`
	EnqueuedAt      *time.Time        `json:"enqueued_at"`
	FirstReceivedAt *time.Time        `json:"first_received_at"`
	LastError       string            `json:"last_error"`
	DueAt           *time.Time        `json:"due_at"`
	Reason          string            `json:"reason"`
	ErrorType       string            `json:"error_type"`
	Cause           string            `json:"cause"`
	DeadAt          *time.Time        `json:"dead_at"`
	Redrives        int               `json:"redrives"`
	// Looked and Cursor are in the last line of a search with a cursor, and nothing else is.
	Looked map[string]int `json:"looked"`
	Cursor string         `json:"cursor"`
}

func (b *peekedBody) view() messageView {
	v := messageView{
		ID: b.MessageID, Queue: b.Queue, State: b.State, Attributes: b.Attributes, Key: b.IdemKey, Group: b.Group, Priority: b.Priority,
		ReplyTo: b.ReplyTo, CorrelationID: b.CorrelationID, Deliveries: b.Attempt, EnqueuedAt: b.EnqueuedAt,
		FirstReceivedAt: b.FirstReceivedAt, DueAt: b.DueAt, LastError: b.LastError, Reason: b.Reason,
		ErrorType: b.ErrorType, Cause: b.Cause, DeadAt: b.DeadAt, Redrives: b.Redrives, Damaged: b.Damaged,
	}
	v.setBody(b.Payload)
	return v
}

// printable returns a body, or any untrusted text, on one line without control characters of a
// terminal; at most limit characters, 0 means all.
func printable(body []byte, limit int) string {
	text := string(body)
	plain := func(r rune) bool { return r == '\t' || unicode.IsPrint(r) && r != utf8.RuneError }
	if strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) || !utf8.ValidString(text) {
		text = strconv.Quote(text)
	}
	if limit > 0 && utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit-1]) + "…"
	}
	return text
}

// stamp returns a time as text.
func stamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// plural returns "1 message" or "3 messages".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// confirm asks the user at the terminal before something that cannot be undone.
// Scripts must pass --yes.
func (s *shell) confirm(yes bool, what string) error {
	if yes {
		return nil
	}
	if !isTerminal(s.Stdin) || s.global.json {
		return usageError("%s cannot be undone; give --yes to confirm", what)
	}
	s.tell("%s cannot be undone. Type yes to confirm: ", strings.ToUpper(what[:1])+what[1:])
	var answer string
	if _, err := fmt.Fscanln(s.Stdin, &answer); err != nil && !errors.Is(err, io.EOF) && answer == "" {
		answer = ""
	}
	if answer != "yes" {
		return &failure{exit: exitFailed, code: "declined", sentence: "nothing was done"}
	}
	return nil
}

// parsePairs parses key=value arguments.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	values := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usageError("--%s: invalid value %.40q; want NAME=VALUE", flag, pair)
		}
		values[key] = value
	}
	return values, nil
}

// A byteSize is a number of bytes as a flag: 65536, 64KiB or 1MiB.
type byteSize int64

// Set parses the flag.
func (b *byteSize) Set(text string) error {
	factor := int64(1)
	for suffix, value := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if digits, ok := strings.CutSuffix(text, suffix); ok {
			text, factor = digits, value
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<50/factor {
		return errors.New("want a number of bytes like 65536, 64KiB or 1MiB")
	}
	*b = byteSize(n * factor)
	return nil
}

// String returns the flag's value.
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

// Type returns the name of the value in the help.
func (b *byteSize) Type() string { return "bytes" }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
