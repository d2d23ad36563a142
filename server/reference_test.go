package server

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/golden"
)

// What is generated from the table of settings: the page docs/configuration.md and the
// file deploy/mailboxd.sample.toml. make generate writes them.
const (
	pageFile   = "../docs/configuration.md"
	sampleFile = "../deploy/mailboxd.sample.toml"
)

//go:embed testdata/configuration.txt
var intro string

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for path, want := range map[string]string{pageFile: page(), sampleFile: sample()} {
		golden.Match(t, path, []byte(want))
	}
}

// uncommented is the sample with every setting in force.
func uncommented() string {
	return regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(sample(), "$1")
}

// loadText reads a text as the file of settings.
func loadText(t *testing.T, text string) Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mailboxd.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Load([]string{"--config", path}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return daemon.Config()
}

func TestSampleFileStatesDefaults(t *testing.T) {
	want := loadText(t, "")
	for name, text := range map[string]string{"as it is": sample(), "uncommented": uncommented()} {
		if got := loadText(t, text); !reflect.DeepEqual(got, want) {
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
	for _, s := range allSettings() {
		if want := 1; !s.Deprecated && seen[s.Key] != want {
			t.Errorf("%s is there %d times", s.Key, seen[s.Key])
		}
	}
}

func TestEveryNumberHasRangeInReference(t *testing.T) {
	text := page()
	for _, s := range allSettings() {
		number := s.Unit == unitCount || s.Unit == unitBytes || s.Unit == unitDuration
		if want := number && !s.Deprecated; (s.Range != "") != want {
			t.Errorf("%s (%s) has the range %q", s.Key, s.Unit, s.Range)
		}
		if row := "| " + s.Unit + " | " + s.Range + " |"; number && !strings.Contains(text, row) {
			t.Errorf("the page does not say %q", row)
		}
	}
}

// page returns docs/configuration.md.
func page() string {
	var b strings.Builder
	b.WriteString("<!-- Generated from server/testdata/configuration.txt and the table in server/setting.go; run make generate. -->\n\n")
	b.WriteString(intro)
	section := "none"
	for _, s := range allSettings() {
		if s.section() != section {
			section = s.section()
			fmt.Fprintf(&b, "\n### %s\n\n", title(&s))
			b.WriteString("| key | flag | variable | default | unit | range | change | what it is |\n|---|---|---|---|---|---|---|---|\n")
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | `%s` | %s | %s | %s | %s | %s |\n", s.Key, s.Flag, s.Variable, shownDefault(&s), s.Unit, s.Range, change(&s), escaped(s.Help))
	}
	return b.String()
}

// title returns the heading of the section that a setting is in.
func title(s *setting) string {
	name := strings.ToUpper(s.Group[:1]) + s.Group[1:]
	if s.section() == "" {
		return name
	}
	return name + ": `[" + s.section() + "]`"
}

// change says what it takes to change a setting.
func change(s *setting) string {
	switch {
	case s.Deprecated:
		return "no effect"
	case s.Live:
		return "live"
	case s.NewQueues:
		return "restart, new queues"
	}
	return "restart"
}

func shownDefault(s *setting) string {
	switch {
	case s.Deprecated:
		return ""
	case s.Default == "":
		return "none"
	case strings.HasPrefix(s.Default, "("):
		return escaped(strings.Trim(s.Default, "()"))
	case s.Default != s.DefaultMicro && s.Key != "profile":
		return fmt.Sprintf("`%s` (micronode: `%s`)", s.Default, s.DefaultMicro)
	}
	return "`" + s.Default + "`"
}

// escaped keeps Markdown from reading marks in a text.
func escaped(text string) string { return strings.NewReplacer("*", `\*`, "|", `\|`).Replace(text) }

const sampleHead = `# Settings of mailboxd, with their defaults. Uncomment what you change, and start the
# daemon with --config FILE, or MAILBOXD_CONFIG. Flags and variables win over this file.
#
# Generated from the table in server/setting.go; run make generate. The reference, with flags
# and variables, is docs/configuration.md.
`

// sample returns deploy/mailboxd.sample.toml. A line that begins with "#" and a letter is
// a setting; comments begin with "# ".
func sample() string {
	var b strings.Builder
	b.WriteString(sampleHead)
	section := ""
	for _, s := range allSettings() {
		if s.Deprecated {
			continue
		}
		if s.section() != section {
			section = s.section()
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		fmt.Fprintf(&b, "\n# %s.\n# %s\n", strings.ToUpper(s.Help[:1])+s.Help[1:], sampleNotes(&s))
		name := strings.TrimPrefix(s.Key, section+".")
		fmt.Fprintf(&b, "#%s = %s\n", name, sampleValue(&s))
	}
	return b.String()
}

// sampleNotes returns unit, range, default and what a change takes.
func sampleNotes(s *setting) string {
	notes := strings.ToUpper(s.Unit[:1]) + s.Unit[1:]
	if s.Range != "" {
		notes += ", " + s.Range
	}
	if s.Default != "" {
		notes += "; default " + strings.ReplaceAll(shownDefault(s), "`", "")
	}
	if s.Live {
		return notes + "; SIGHUP changes it."
	}
	if s.NewQueues {
		return notes + "; needs a restart, and applies to new queues."
	}
	return notes + "; needs a restart."
}

// sampleValue returns the default in TOML. An empty text means the default where that
// depends on other settings.
func sampleValue(s *setting) string {
	if strings.HasPrefix(s.Default, "(") {
		return `""`
	}
	switch s.Unit {
	case unitSwitch, unitCount:
		return s.Default
	}
	return strconv.Quote(s.Default)
}
