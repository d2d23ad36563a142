package cli_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/doctest"
	"github.com/mailboxmq/mailbox/server"
)

var update = flag.Bool("update", false, "write the output into the sessions of testdata")

// TestSessions runs the commands in testdata/*.session and compares their
// output. A line "$ mailbox …" is a command, "< …" a line of its standard input,
// "! …" one of standard error, "[n]" an exit code, and the rest is standard output.
// Ids are $1, $2 and so on in the order of their appearance, in commands too.
func TestSessions(t *testing.T) {
	sessions, err := filepath.Glob("testdata/*.session")
	if err != nil || len(sessions) == 0 {
		t.Fatalf("there are no sessions: %v", err)
	}
	for _, path := range sessions {
		for _, surface := range []struct {
			name   string
			config func() server.Config
			http   bool
		}{{"memory", inMemory, false}, {"disk", onDisk, false}, {"http", inMemory, true}} {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".session")+"/"+surface.name, func(t *testing.T) {
				d := start(t, surface.config())
				environ := d.environ()
				if surface.http {
					environ = append(environ, "MAILBOX_OAP_ADDR=off")
				}
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				s := &session{daemon: d, environ: environ, ids: make(map[string]string)}
				got := s.run(t, string(text))
				if *update {
					if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
					return
				}
				doctest.CompareLines(t, got, string(text))
			})
		}
	}
}

// TestReadmeCommandsPrintWhatItShows runs the commands of the first screen.
func TestReadmeCommandsPrintWhatItShows(t *testing.T) {
	text, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```console\n")
	block, _, _ = strings.Cut(block, "```")
	begin := strings.Index(block, "$ mailbox ") // the daemon runs, and the program is built
	if begin < 0 {
		t.Fatal("the README shows no command")
	}
	d := start(t, onDisk())
	shown := &session{daemon: d, ids: make(map[string]string)}
	run := &session{daemon: d, environ: d.environ(), ids: make(map[string]string)}
	doctest.CompareLines(t, run.run(t, block[begin:]), shown.plain(block[begin:]))
}

type session struct {
	daemon  *daemon
	environ []string
	ids     map[string]string // to names
	known   []string          // ids in order
}

func (s *session) run(t *testing.T, text string) string {
	var out strings.Builder
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		command, ok := strings.CutPrefix(lines[i], "$ mailbox ")
		if !ok {
			if strings.HasPrefix(lines[i], "#") || lines[i] == "" {
				out.WriteString(lines[i] + "\n")
			}
			continue
		}
		out.WriteString(lines[i] + "\n")
		var stdin strings.Builder
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "< ") {
			i++
			out.WriteString(lines[i] + "\n")
			stdin.WriteString(strings.TrimPrefix(lines[i], "< ") + "\n")
		}
		r := begin(t, s.environ, strings.NewReader(stdin.String()), s.words(command)...).wait()
		if out.WriteString(s.plain(r.stdout)); r.stdout != "" && !strings.HasSuffix(r.stdout, "\n") {
			out.WriteString("\n")
		}
		for line := range strings.Lines(s.plain(r.stderr)) {
			out.WriteString("! " + line)
		}
		if r.code != 0 {
			fmt.Fprintf(&out, "[%d]\n", r.code)
		}
	}
	return out.String()
}

// words splits a command into words like a shell, as far as sessions need it.
func (s *session) words(command string) []string {
	command = regexp.MustCompile(`\$\d+`).ReplaceAllStringFunc(command, func(name string) string {
		var n int
		if _, err := fmt.Sscanf(name, "$%d", &n); err != nil || n < 1 || n > len(s.known) {
			return name
		}
		return s.known[n-1]
	})
	var words []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1) {
		word = strings.ReplaceAll(strings.Trim(word, "'"), "DIR", s.daemon.dir)
		words = append(words, word)
	}
	return words
}

var (
	receipts  = regexp.MustCompile(`"receipt":"[^"]+"`)
	tokens    = regexp.MustCompile(`AgI[A-Za-z0-9_-]{40,}`)
	keyIDs    = regexp.MustCompile(`(?m)(key |"key_id":"|^)[0-9a-f]{8}\b`)
	kept      = regexp.MustCompile(`"durability":"(none|disk)"`)
	durations = regexp.MustCompile(`"duration_ms":\d+`)
)

// plain replaces the parts of an output that differ in each run.
func (s *session) plain(text string) string {
	text = receipts.ReplaceAllString(text, `"receipt":"RECEIPT"`)
	text = tokens.ReplaceAllString(text, "TOKEN")
	text = doctest.IDs.ReplaceAllStringFunc(text, func(id string) string {
		if strings.HasPrefix(id, "7Z") {
			return "NARROWED"
		}
		if s.ids[id] == "" {
			s.known = append(s.known, id)
			s.ids[id] = fmt.Sprintf("$%d", len(s.known))
		}
		return s.ids[id]
	})
	text = doctest.Moments.ReplaceAllString(text, "TIME")
	text = keyIDs.ReplaceAllString(text, "${1}KEY")
	text = kept.ReplaceAllString(text, `"durability":"DURABILITY"`)
	// The operator's token names every operation; that of a document may be of an earlier version.
	text = strings.NewReplacer("admin, backup, audit, ask, answer, throttle on all queues", "admin on all queues", "send,recv,ack,nack,extend,stats,peek,purge,dlq,admin,backup,audit,ask,answer,throttle", "*", `"admin","backup","audit","ask","answer","throttle"]`, `"admin"]`).Replace(text)
	text = durations.ReplaceAllString(text, `"duration_ms":0`)
	return strings.ReplaceAll(text, s.daemon.dir, "DIR")
}
