package cli_test

import (
	"strings"
	"testing"
	"unicode"
)

func TestUntrustedTextHasNoControlCharacters(t *testing.T) {
	d := start(t, inMemory())
	const hostile = "\x1b[31mred\x1b]0;title\a\r\nforged\u202egnp.exe"
	const name = "jobs\u202egnp.exe" // control characters are refused in names
	d.must(t, "queues", "create", name+"2", "--dead-letter-to", name)
	id := d.must(t, "send", name, hostile, "--key", hostile, "--group", hostile, "--reply-to", name, "--correlation-id", hostile, "--attr", "a="+hostile)
	var shown strings.Builder
	show := func(args ...string) { shown.WriteString(d.must(t, args...) + "\n") }
	show("peek", name)
	d.must(t, "recv", name)
	d.must(t, "nack", id, "--dead", "--cause", hostile)
	show("dlq", "ls", name)
	show("dlq", "show", name, id)
	show("trace", id)
	show("queues", "show", name+"2")
	show("queues", "ls", "--all-tenants")
	show("stats")
	show("audit")
	for line := range strings.Lines(shown.String()) {
		bad := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
		if strings.ContainsFunc(line, bad) || strings.HasPrefix(line, "forged") {
			t.Errorf("a line is %q", line)
		}
	}
}
