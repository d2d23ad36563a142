package broker_test

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// deadOf returns a dead letter with an error.
func deadOf(text string) broker.Peeked {
	var p broker.Peeked
	p.State, p.Reason, p.LastError = driver.StateDead, driver.ReasonFatal, text
	return p
}

func TestCauseIgnoresWhatVaries(t *testing.T) {
	for _, same := range [][2]string{
		{"dial tcp 10.0.0.1:25: refused", "dial tcp 10.0.0.2:26: refused"},
		{`no order "a-1"`, `no order "b-2"`},
		{"after 3 s\nin step 4", "after 30 s in step 5"},
	} {
		x, y := deadOf(same[0]), deadOf(same[1])
		first, words := x.Cause()
		if second, _ := y.Cause(); first != second {
			t.Errorf("%q and %q have two causes: %s", same[0], same[1], words)
		}
	}
	x, y := deadOf("refused"), deadOf("timeout")
	first, _ := x.Cause()
	if second, _ := y.Cause(); first == second {
		t.Error("two errors have one cause")
	}
}

// FuzzCause: texts of errors, which workers write, are cut and stay one line.
func FuzzCause(f *testing.F) {
	f.Add("dial tcp 10.0.0.1:25: \"x\" refused\nafter 3 s")
	f.Fuzz(func(t *testing.T, text string) {
		p := deadOf(text)
		if id, words := p.Cause(); strings.ContainsAny(words, "\n\r\t") || len([]rune(words)) > 201 || len(id) != 12 {
			t.Errorf("%q becomes %s %q", text, id, words)
		}
	})
}
