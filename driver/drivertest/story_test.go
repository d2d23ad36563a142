package drivertest

import (
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/queuemodel"
	"github.com/mailboxmq/mailbox/internal/testing/story"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestStoriesRunOnModel(t *testing.T) {
	volume.InFull(t)
	for _, c := range storyCases() {
		if c.real {
			continue
		}
		t.Run(c.id+"/"+c.title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.check(t, modelBackend(nil)) })
		})
	}
}

func TestPrintedProgramReadsBack(t *testing.T) {
	volume.InFull(t)
	for _, untimed := range []bool{false, true} {
		a := ability{traits: queuemodel.AllTraits, admin: true, drop: true, fair: true, limits: true, untimed: untimed, crashes: []Crash{CrashClean, CrashKill, CrashPower}}
		rapid.Check(t, func(rt *rapid.T) {
			want := plans(a).Draw(rt, "program").program
			got, err := parseProgram(want.String())
			if err != nil {
				rt.Fatalf("%v\n%v", err, want)
			}
			if got.String() != want.String() || !reflect.DeepEqual(got.Operations, want.Operations) && len(want.Operations) > 0 ||
				got.Config != want.Config || got.Untimed != want.Untimed || !reflect.DeepEqual(got.Other, want.Other) {
				rt.Fatalf("printed:\n%v\nread back:\n%v", want, got)
			}
		})
	}
}

// FuzzOperation checks that an operation that can be read is printed so that it reads the same.
func FuzzOperation(f *testing.F) {
	for _, seed := range []string{
		"send a b group=g key=k, c delay=5s attribute:colour=red body=x seal=s", "receive max=2 visibility=10s bytes=3 wait=1s",
		"receive 3 at=2tick", "nack a#2 d3 forged-d4 d? delay=hold-1ms cause=boom", "extend-late a visibility=0s", "ack-late a",
		"dead-letter a reason=fatal cause=why type=T", "redrive all limit=2", "redrive", "in other move this limit=3", "discard m1 m?",
		"peek m1 state=ready state=dead older=1s reason=fatal limit=2 attribute:a=b", "time +10s unseen", "restart power",
		"configure max-messages=2 strict=yes", "in x queue retain-ready=2tick", "stats at=tick", "clock -hold", "expired a", "too-late a", "verbose untimed",
	} {
		f.Add(seed)
	}
	names := durations{"tick": 10, "hold": 1000}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := story.ParseCommand(line)
		if err != nil {
			return
		}
		op, err := parseOperation(c, names)
		if err != nil {
			return
		}
		c, err = story.ParseCommand(op.String())
		if err != nil {
			t.Fatalf("%q is %q: %v", line, op, err)
		}
		again, err := parseOperation(c, names)
		if err != nil || again.String() != op.String() {
			t.Fatalf("%q is %q, which reads as %v, %v", line, op, again, err)
		}
	})
}

// pasted returns the story in the failure of a random program.
func pasted(t *testing.T, failure string) testCase {
	t.Helper()
	_, text, _ := strings.Cut(failure, "== RULE title")
	text, _, _ = strings.Cut(text, "To reproduce")
	cases, err := readStories(fstest.MapFS{"stories/pasted.txt": {Data: []byte("== RULE title" + text)}})
	if err != nil || len(cases) != 1 {
		t.Fatalf("%d stories, %v:\n%s", len(cases), err, text)
	}
	return cases[0]
}

// TestFailingProgramIsAStory pastes failing programs in as stories, which pass on the model.
func TestFailingProgramIsAStory(t *testing.T) {
	volume.InFull(t)
	setFlag(t, "rapid.shrinktime", "1ms")
	for _, test := range mutants {
		t.Run(test.name, func(t *testing.T) {
			mutant := modelBackend(func(q *queuemodel.Queue) driver.Queue {
				m := test.mutant
				m.Queue = q
				return &m
			})
			c := pasted(t, provoke(t, mutant, 100_000))
			synctest.Test(t, func(t *testing.T) { c.check(t, modelBackend(nil)) })
		})
	}
}

func TestStoryWithMistakeIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"send a":                       `a.txt:1: want a header "== RULE title"`,
		"== R t":                       "a.txt:1: the story has no commands",
		"== R t\nneeds luck\nsend a":   `a.txt:1: unknown need "luck"`,
		"== R t\nshout a":              `a.txt:2: unknown verb "shout"`,
		"== R t\nreceive max=x":        `a.txt:2: receive: "x" is not a number of messages`,
		"== R t\nsend a colour=red":    `a.txt:2: unknown option "colour"`,
		"== R t\nnack a delay=2moons":  `a.txt:2: nack: duration "2moons": want a sum of durations, tick and hold`,
		"== R t\nqueue max-messages=y": "a.txt:2: queue: max-messages=y: want a number",
		"== R t\nack a, b":             "a.txt:2: ack: unexpected comma",
	} {
		if _, err := readStories(fstest.MapFS{"stories/a.txt": {Data: []byte(text)}}); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// TestStoryFailureNamesLine runs a story that is wrong, in a child process, and reads the failure.
func TestStoryFailureNamesLine(t *testing.T) {
	const wrong = "== ACK-1 a story\nsend a b\nreceive 2\nack a\nstats\n----\na b\nempty\n"
	if os.Getenv("MAILBOX_WRONG_STORY") != "" {
		cases, err := readStories(fstest.MapFS{"stories/wrong.txt": {Data: []byte(wrong)}})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) { cases[0].check(t, modelBackend(nil)) })
		return
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), executable, "-test.run=^TestStoryFailureNamesLine$")
	child.Env = append(os.Environ(), "MAILBOX_WRONG_STORY=yes")
	output, err := child.CombinedOutput()
	if want := "ACK-1: wrong.txt:5: stats: \n        got:\n        1 in flight\n        want:\n        empty\n"; err == nil || !strings.Contains(string(output), want) {
		t.Errorf("got %v:\n%s\nwant %s", err, output, want)
	}
}
