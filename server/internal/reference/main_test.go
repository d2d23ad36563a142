package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for path, want := range map[string]string{pageFile: page(), sampleFile: sample()} {
		got, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the table of settings says; run make generate", filepath.Base(path))
		}
	}
}

// uncommented is the sample with every setting in force.
func uncommented() string {
	return regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(sample(), "$1")
}

// load reads a text as the file of settings.
func load(t *testing.T, text string) server.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mailboxd.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := server.Load([]string{"--config", path}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := server.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return daemon.Config()
}

func TestSampleFileStatesDefaults(t *testing.T) {
	want := load(t, "")
	for name, text := range map[string]string{"as it is": sample(), "uncommented": uncommented()} {
		if got := load(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestSampleFileHasEverySetting(t *testing.T) {
	section, seen := "", make(map[string]int)
	for line := range strings.Lines(uncommented()) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "["); ok {
			section = strings.TrimSuffix(name, "]") + "."
		} else if name, _, ok := strings.Cut(line, " = "); ok && !strings.HasPrefix(line, "#") {
			seen[section+name]++
		}
	}
	for _, s := range server.Settings() {
		if want := 1; !s.Deprecated && seen[s.Key] != want {
			t.Errorf("%s is there %d times", s.Key, seen[s.Key])
		}
	}
}

func TestEveryNumberHasRangeInReference(t *testing.T) {
	text := page()
	for _, s := range server.Settings() {
		number := s.Unit == server.UnitCount || s.Unit == server.UnitBytes || s.Unit == server.UnitDuration
		if want := number && !s.Deprecated; (s.Range != "") != want {
			t.Errorf("%s (%s) has the range %q", s.Key, s.Unit, s.Range)
		}
		if row := "| " + s.Unit + " | " + s.Range + " |"; number && !strings.Contains(text, row) {
			t.Errorf("the page does not say %q", row)
		}
	}
}
