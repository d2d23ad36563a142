package shard

import (
	"path"
	"slices"
	"strings"
	"testing"
)

var scripts = []*Script{
	openScript, deleteScript, PingScript, BatchScript, UsageScript, peekScript, FireScript, SchedulesScript, RedriveScript,
	DiscardScript, PurgeScript, PauseScript, EditScript, ForwardScript, arrivalScript, MoveReserveScript, MoveFinishScript, DedupClaimScript, ReplySlotScript, replySweepScript, replyListScript,
}

// TestScriptHeadersMatchArguments compares the header of a script with its arguments in
// Go.
func TestScriptHeadersMatchArguments(t *testing.T) {
	for _, s := range scripts {
		text := ReadScript(s.name)
		var want []string
		want = append(want, strings.Join(s.args, ", "))
		for _, e := range s.each {
			want = append(want, strings.Join(e.args, ", "))
		}
		var got []string
		for i, list := range strings.Split(header(text, "ARGV"), ";") {
			list = strings.Join(strings.Fields(list), " ")
			if i > 0 { // "for each message id, record"
				words := strings.Fields(list)
				first := s.each[i-1].args[0] + ","
				if len(s.each[i-1].args) == 1 {
					first = s.each[i-1].args[0]
				}
				at := slices.Index(words, first)
				if !strings.HasPrefix(list, "for each ") || at < 0 {
					t.Errorf("%s: cannot make sense of %q", s.name, list)
					continue
				}
				list = strings.Join(words[at:], " ")
			}
			got = append(got, list)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: its header says\n%q, but it is passed\n%q", s.name, got, want)
		}
		if keys := header(text, "KEYS"); keys != s.keys {
			t.Errorf("%s: its header says that its keys are %q, and they are %q", s.name, keys, s.keys)
		}
		if header(text, "Result") == "" {
			t.Errorf("%s: its header does not say what it answers", s.name)
		}
	}
}

// TestScriptFilesFollowRules checks rules that hold for all script files.
func TestScriptFilesFollowRules(t *testing.T) {
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, s := range scripts {
		text := ReadScript(s.name)
		_, short, _ := strings.Cut(text, fastPath)
		short, _, _ = strings.Cut(short, "\n")
		for _, part := range strings.Fields(s.name + " " + header(text, "Uses") + " " + short) {
			used[part] = true
		}
	}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file.Name()), ".lua")
		text := ReadScript(name)
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
		if !strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(text, "#!lua flags=allow-oom\n"), "#!lua\n"), "-- ") {
			t.Errorf("%s does not begin with a comment", name)
		}
		for _, forbidden := range []string{"'KEYS'", "'SCAN'", "HSCAN", "ZSCAN", "SSCAN", "'EXPIRE", "PEXPIRE", "{queue"} {
			if strings.Contains(text, forbidden) {
				t.Errorf("%s contains %s", name, forbidden)
			}
		}
		if lines := strings.Count(text, "\n"); lines > 300 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
}

// TestShardScriptHasEveryKey: a script names only keys that it was given, so each runs in
// any slot of a cluster.
func TestShardScriptHasEveryKey(t *testing.T) {
	if len(KeyNames) != 24 {
		t.Fatalf("there are %d keys; scripts that name them by number have to follow", len(KeyNames))
	}
	text := ReadScript("shard")
	renamed := map[string]string{"graves": "deadLetters", "manifests": "bundles"}
	for i, name := range KeyNames {
		if at := slices.Index(KeyNames, name); at != i {
			t.Errorf("%s is there twice", name)
		}
		if other, ok := renamed[name]; ok {
			name = other
		}
		if !strings.Contains(text, name+" = ") {
			t.Errorf("shard.lua does not have the key %s", name)
		}
	}
}

func TestWrongArgumentCountsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"q", "0", "0", "", "0", "1", "0", "0", "5", "5", "5", "0", "0", "0", ""},         // a settle is missing
		{"q", "0", "0", "", "0", "0", "0", "0", "5", "5", "5", "0", "0", "0", "", "more"}, // part of a request
		{"q", "0", "0", ""}, // not even these
		{"q", "0", "0", "", "0", "0", "0", "1", "5", "5", "5", "0", "0", "0", "", "id", "record"}, // half a message
		{"q", "0", "0", "", "0", "0", "0", "0", "5", "5", "5", "0", "1", "0", "", "slot", "life"}, // half a slot
		{"q", "0", "0", "", "0", "0", "0", "0", "5", "5", "5", "0", "0", "1", "", "slot", ""},     // half an answer
	} {
		if BatchScript.check(args) == nil {
			t.Errorf("%q: nothing is wrong with it", args)
		}
	}
}
