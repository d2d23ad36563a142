package story

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const example = `# A comment.
== ACK-1 ack removes a message
needs fifo dead-letters
send a b group=g, c attribute:k="v w"
in "other queue" receive max=2
----
a b

ack a

== VIS-1 a title
  time +10s
  stats
  ----
  empty
`

func TestParse(t *testing.T) {
	got, err := Parse("example.txt", example)
	if err != nil {
		t.Fatal(err)
	}
	want := []Story{
		{
			File: "example.txt", Line: 2, Rule: "ACK-1", Title: "ack removes a message", Needs: []string{"fifo", "dead-letters"},
			Blocks: []Block{
				{
					Commands: []Command{
						{Line: 4, Verb: "send", Parts: []Part{
							{Words: []string{"a", "b"}, Options: []Option{{"group", "g"}}},
							{Words: []string{"c"}, Options: []Option{{"attribute:k", "v w"}}},
						}},
						{Line: 5, Queue: "other queue", Verb: "receive", Parts: []Part{{Options: []Option{{"max", "2"}}}}},
					},
					Want: []string{"a b"}, WantLine: 7,
				},
				{Commands: []Command{{Line: 9, Verb: "ack", Parts: []Part{{Words: []string{"a"}}}}}, WantLine: 10},
			},
		},
		{
			File: "example.txt", Line: 11, Rule: "VIS-1", Title: "a title",
			Blocks: []Block{{
				Commands: []Command{
					{Line: 12, Verb: "time", Parts: []Part{{Words: []string{"+10s"}}}},
					{Line: 13, Verb: "stats", Parts: []Part{{}}},
				},
				Want: []string{"empty"}, WantLine: 15,
			}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseRefusesWithFileAndLine(t *testing.T) {
	for text, want := range map[string]string{
		"send a\n\n----\na\n":     "f:3: output without commands",
		"== ACK-1\n":              `f:1: header "== ACK-1"; want "== RULE title"`,
		"send \"a\n":              `f:1: unterminated quotation: "a`,
		"send a=\n":               `f:1: want a word at ""`,
		"send a\"b\"\n":           `f:1: unexpected "\"b\""`,
		"== A b\nsend a\nneeds x": "f:3: needs belong directly below the header",
		"send x[3..1]":            "f:1: x[3..1]: want a range of 1 to 10000 words",
		"a=b c":                   `f:1: invalid verb "a"`,
	} {
		if _, err := Parse("f", text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestRangesExpand(t *testing.T) {
	c, err := ParseCommand(`send x[9..11] "y[1..2]"`)
	if err != nil || !slices.Equal(c.Parts[0].Words, []string{"x9", "x10", "x11", "y[1..2]"}) {
		t.Errorf("got %q, %v", c.Parts, err)
	}
	if got := Expand("x[1..3] z"); got != "x1 x2 x3 z" {
		t.Errorf("got %q", got)
	}
}

func TestRewriteReplacesOutput(t *testing.T) {
	stories, err := Parse("example.txt", example)
	if err != nil {
		t.Fatal(err)
	}
	if got := Rewrite(example, stories); got != strings.ReplaceAll(example, "  empty", "empty") {
		t.Errorf("without a change: got\n%s", got)
	}
	stories[0].Blocks[0].Want = []string{"one", "two"}
	stories[0].Blocks[1].Want = []string{"three"}
	stories[1].Blocks[0].Want = nil
	want := strings.NewReplacer("a b\n\n", "one\ntwo\n\n", "ack a\n", "ack a\n----\nthree\n", "  empty\n", "").Replace(example)
	if got := Rewrite(example, stories); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzCommand checks that a command that can be read is printed so that it reads the same.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{
		`send a b group=g, c attribute:k="v w"`, `in other receive max=2`, `send "" x[1..3]`, `send "x[1..3]"`, `ack a#2 "in"`, "in in in", `a , ,`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := ParseCommand(line)
		if err != nil {
			return
		}
		again, err := ParseCommand(c.String())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%q is %q, which reads as %+v, %v", line, c, again, err)
		}
	})
}
