package tidy_test

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/internal/tidy"
)

var lowerCounts = flag.Bool("lower", false, "lower the counts of words.txt to what they are")

func TestRetiredWordsOnlyDecrease(t *testing.T) {
	volume.InFull(t)
	if *lowerCounts {
		tree, err := repository()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("words.txt", []byte(tidy.LowerCounts(tree)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	hold(t, tidy.Words)
}

// TestReviewedWordsAreCounted fails on nothing: go test -v prints the words
// that a reviewer looks at.
func TestReviewedWordsAreCounted(t *testing.T) {
	volume.InFull(t)
	tree, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range tidy.CountReviewed(tree) {
		t.Log(line)
	}
}

func TestEveryRetiredWordFailsEverywhere(t *testing.T) {
	title := func(word string) string { return strings.ToUpper(word[:1]) + word[1:] }
	for _, word := range slices.Sorted(maps.Keys(tidy.Retired)) {
		for name, tree := range map[string]files{
			"a comment":    {"p/a.go": "package p\n\n// The " + word + " waits.\n"},
			"a string":     {"p/a.go": "package p\n\nvar s = \"\\nthe " + word + " waits\"\n"},
			"a name":       {"p/a.go": "package p\n\nfunc old" + title(word) + "Locked() {}\n"},
			"a field":      {"p/a.go": "package p\n\ntype t struct{ " + word + " int }\n"},
			"a variable":   {"p/a.go": "package p\n\nfunc f() { " + word + " := 1; _ = " + word + " }\n"},
			"a file name":  {"p/old_" + word + ".go": "package p\n"},
			"a document":   {"docs/a.md": "# A\n\nThe " + word + " waits.\n"},
			"a script":     {"p/a.lua": "local x = old -- the " + word + "\n"},
			"a shell file": {"ci/a.sh": "echo the " + word + "\n"},
			"a makefile":   {"Makefile": "# the " + word + "\n"},
			"a proto file": {"proto/a.proto": "message A {} // the " + word + "\n"},
			"a workflow":   {"deploy/a.yaml": "a: 1 # the " + word + "\n"},
		} {
			if found := tidy.Words(tree.tree(t)); len(found) != 1 || !strings.Contains(strings.ToLower(found[0]), word) {
				t.Errorf("%s with %q gives %q, want one sentence", name, word, found)
			}
		}
	}
}

func TestWordsFindsPhrases(t *testing.T) {
	tree := files{"p/a.go": `package p

// f is no
// function. There is no message, it is no longer than that.
func f() { g("x is to be y", "there is no z", is, "no q") }
`}.tree(t)
	expect(t, tidy.Words(tree), `p/a.go:4 says "is no function"`, `p/a.go:5 says "is to be"`)
}

func TestWordsAllowsNamesOfTheWire(t *testing.T) {
	tree := files{
		"gen/a.go":               "package gen\n\nvar Topic = 1\n",
		"api/a.yaml":             "topic: a topic\n",
		"proto/a.proto":          "message BuryRequest {\n  string topic = 1; // `topic`: the queue\n}\n",
		"docs/a.md":              "# A\n\nThe field `topic`.\n\n```\ncurl topic x\n```\n",
		"docs/decisions/0001.md": "# D\n\nIt was \"a grave mistake\", said `bury`.\n",
		"p/a.go":                 "package p\n\ntype t struct{ Queue string `json:\"topic\"` }\n\nvar s = q.Topic + \"topic\" + \"mbx:topic=a b\"\n",
		"r/a.go":                 "package r\n\nfunc (s *t) Bury() { post(\"/v1/bury\") }\n",
		"internal/tidy/kept.txt": "r Bury: the method of the generated service\nr /v1/bury: the path\n",
	}
	expect(t, tidy.Words(tree.tree(t)))
	tree["internal/tidy/kept.txt"] += "r grave: habit\nr x\n"
	expect(t, tidy.Words(tree.tree(t)), "is not a folder", `"grave" is not needed`)
}

func TestWordsFindsTopicNextToUnderscoreInNames(t *testing.T) {
	tree := files{
		"p/a.go":     "package p\n\nfunc open_topic() {}\n\ntype t struct{ topic_name, old_topics int }\n\nvar key = \"topic_bytes\"\n",
		"p/test.go":  "package p\n\nfunc Test_topic_waits() {}\n",
		"p/a.lua":    "local topic_name = KEYS[1] -- of old_topic\n",
		"docs/a.md":  "# A\n\nThe metric mailbox_topic_bytes.\n",
		"p/wire.lua": "call('HGET', meta, 'topic')\n",
	}
	expect(t, tidy.Words(tree.tree(t)),
		`p/a.go:3 says "topic"`, `p/a.go:5 says "topic"`, `p/a.go:5 says "topics"`,
		`p/a.lua:1 says "topic"`, `p/a.lua:1 says "topic"`,
		`p/test.go:3 says "topic"`)
}

func TestWordsFollowsTheCounts(t *testing.T) {
	const list = "internal/tidy/words.txt"
	tree := files{"p/a.go": "package p\n\n// Nobody, somebody.\n", "q/a.go": "package q\n"}
	for _, test := range []struct {
		name, counts, lowered string
		want                  []string
	}{
		{"unlisted", "", "", []string{`says "Nobody"`, `says "somebody"`}},
		{"listed", "p 2\n", "p 2\n", nil},
		{"shrunk", "# why\n\np 3\n\nq 1\n\n", "# why\n\np 2\n\n\n", []string{"q has no retired words"}},
		{"grown", "p 1\n", "p 1\n", []string{"p has 2 retired words, internal/tidy/words.txt allows 1", "Nobody", "somebody"}},
		{"unreadable", "p 2\np 1\nq\n", "p 2\np 1\nq\n", []string{`"p 1" is not`, `"q" is not`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree[list] = test.counts
			expect(t, tidy.Words(tree.tree(t)), test.want...)
			if lowered := tidy.LowerCounts(tree.tree(t)); lowered != test.lowered {
				t.Errorf("lowered to %q, want %q", lowered, test.lowered)
			}
		})
	}
}
