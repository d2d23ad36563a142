package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSeededBugsFollowCode fails if code was changed under a bug, which then has to follow.
func TestSeededBugsFollowCode(t *testing.T) {
	bugs, err := readBugs("bugs")
	if err != nil {
		t.Fatal(err)
	}
	if len(bugs) < 40 {
		t.Errorf("%d bugs, want at least 40", len(bugs))
	}
	rules, err := os.ReadFile("../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range bugs {
		b := &bugs[i]
		if _, err := b.apply("../.."); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(rules), b.Rule) {
			t.Errorf("bug %s breaks %s, which is not in docs/semantics.md", b.ID, b.Rule)
		}
		for _, pattern := range b.Tests {
			tests, err := filepath.Glob("../../" + pattern + "/*_test.go")
			if err != nil || len(tests) == 0 {
				t.Errorf("bug %s: found no tests in %s, %v", b.ID, pattern, err)
			}
		}
	}
}

func TestBugsWithoutTheirCodeAreRefused(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("one\ntwo\none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	header := "bug: a\nrule: A-1\nwhat: w\ntests: .\nfile: a.go\n"
	for patch, fine := range map[string]bool{"-two\n+three\n": true, "-one\n+three\n": false, "-three\n+two\n": false, "-wo\n+three\n": false, " two\n": false} {
		bugs, err := parseBugs([]byte(header + patch))
		if err != nil || len(bugs) != 1 {
			t.Fatalf("%q: %v, %v", patch, bugs, err)
		}
		changed, err := bugs[0].apply(root)
		if (err == nil) != fine {
			t.Errorf("%q: %v", patch, err)
		}
		if fine && string(changed["a.go"]) != "one\nthree\none\n" {
			t.Errorf("%q gives %q", patch, changed["a.go"])
		}
	}
	for _, text := range []string{"rule: A-1\n", "-two\n", "bug: a\n-two\n", "bug: a\nrule: A-1\nwhat: w\nfile: a.go\n", strings.Replace(header, "what", "why", 1)} {
		if _, err := parseBugs([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestPageIsMadeOfResults(t *testing.T) {
	want, err := page("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../" + pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is out of date: run go run ./internal/lab page", pageFile)
	}
}

func TestFirstFailureIsRead(t *testing.T) {
	const start = `{"Action":"start","Package":"github.com/mailboxmq/mailbox/p"}` + "\n"
	for events, want := range map[string]string{
		start + `{"Action":"pass","Package":"github.com/mailboxmq/mailbox/p"}`:                                                                                                                          survived,
		start + `{"Action":"fail","Package":"github.com/mailboxmq/mailbox/p","Test":"TestA/b"}` + "\n" + `{"Action":"fail","Test":"TestC"}`:                                                             caught + " p TestA/b",
		start + `{"Action":"output","Package":"github.com/mailboxmq/mailbox/p","Output":"panic: test timed out after 20m0s\n"}` + "\n" + `{"Action":"fail","Package":"github.com/mailboxmq/mailbox/p"}`: doubtful + " p (the process ended)",
		`{"Action":"build-fail"}`: broken + "",
		start + `{"Action":"fail","Package":"github.com/mailboxmq/mailbox/p","FailedBuild":"p"}`: broken,
	} {
		result := watch(bufio.NewScanner(strings.NewReader(events)))
		if got := strings.TrimSpace(result.Outcome + " " + result.Test); got != want {
			t.Errorf("%s: %q, want %q", events, got, want)
		}
	}
}
