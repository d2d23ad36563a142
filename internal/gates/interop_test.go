package gates_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/server"
)

// python returns an interpreter that has pymacaroons; MAILBOX_PYTHON names another.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("MAILBOX_PYTHON"), "python3", "/usr/bin/python3"} {
		if name != "" && exec.Command(name, "-c", "import pymacaroons").Run() == nil {
			return name
		}
	}
	proctest.End(t, &proctest.MissingError{Program: "a Python 3 with pymacaroons"})
	return ""
}

// TestTokensNarrowedByPymacaroonsWork narrows a token with pymacaroons, without
// the daemon, and checks what the daemon accepts.
func TestTokensNarrowedByPymacaroonsWork(t *testing.T) {
	interpreter := python(t)
	d := start(t, inMemory...)
	narrow := func(token, what string, caveats ...string) string {
		command := exec.Command(interpreter, append([]string{filepath.Join("testdata", "narrow.py"), what}, caveats...)...)
		command.Stdin = strings.NewReader(token)
		text, err := command.Output()
		if err != nil {
			failure := new(exec.ExitError)
			if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output does not wrap
				failure = e
			}
			t.Fatalf("%s: %v\n%s", what, err, failure.Stderr)
		}
		return strings.TrimSpace(string(text))
	}
	if err := post(t, d, d.token, "/v1/send", object{"topic": "bills", "idem_key": "1", "payload_b64": ""}); err != nil {
		t.Fatal(err)
	}
	if err := post(t, d, d.token, "/v1/send", object{"topic": "orders", "idem_key": "1", "payload_b64": ""}); err != nil {
		t.Fatal(err)
	}
	inAnHour := capability.ExpiresAt(time.Now().Add(time.Hour)).String()
	anHourAgo := capability.ExpiresAt(time.Now().Add(-time.Hour)).String()
	narrowed := narrow(d.token, "add", "mbx:op=send", "mbx:topic=orders", inAnHour)

	ours, err := capability.Parse(d.token)
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = ours.Narrow(capability.Operations(capability.OpSend)); err != nil {
		t.Fatal(err)
	}
	text := narrow(d.token, "add", "mbx:op=send")
	if theirs, err := capability.Parse(text); err != nil || theirs.Reveal() != ours.Reveal() {
		t.Errorf("pymacaroons writes another token than we do, %v:\n%s\n%s", err, text, ours.Reveal())
	}
	cases := 0
	for _, try := range []struct {
		name, token, path, queue string
		want                     int
	}{
		{"as it was", d.token, "/v1/recv", "bills", 200},
		{"narrowed, and within", narrowed, "/v1/send", "orders", 200},
		{"narrowed, another operation", narrowed, "/v1/recv", "orders", 403},
		{"narrowed, another queue", narrowed, "/v1/send", "bills", 403},
		{"narrowed twice, and within", narrow(narrowed, "add", "mbx:topic=orders"), "/v1/send", "orders", 200},
		{"narrowed to nothing", narrow(narrowed, "add", "mbx:topic=bills"), "/v1/send", "orders", 403},
		{"widened by another caveat", narrow(narrowed, "add", "mbx:op=*", "mbx:topic=*"), "/v1/recv", "orders", 403},
		{"expired", narrow(narrowed, "add", anHourAgo), "/v1/send", "orders", 401},
		{"with an unknown caveat", narrow(narrowed, "add", "mbx:colour=blue"), "/v1/send", "orders", 403},
		{"with a caveat of another service", narrow(narrowed, "add", "account = 3735928559"), "/v1/send", "orders", 403},
		{"with a caveat dropped", narrow(narrowed, "drop"), "/v1/send", "orders", 401},
		{"with its caveats reordered", narrow(narrowed, "reorder"), "/v1/send", "orders", 401},
		{"with a caveat that is not signed", narrow(narrowed, "append without signing", "mbx:op=send"), "/v1/send", "orders", 401},
		{"minted with a guess", narrow(narrowed, "mint", "mbx:op=*", "mbx:topic=*", inAnHour), "/v1/send", "orders", 401},
	} {
		request := object{"topic": try.queue}
		if try.path == "/v1/send" {
			request["idem_key"], request["payload_b64"] = try.name, ""
		}
		got := http.StatusOK
		if err := post(t, d, try.token, try.path, request); err != nil {
			got = err.status
		}
		// An unknown caveat may be answered with 401 or 403; it must be
		// refused.
		if got != try.want && !(try.want == 403 && got == 401) {
			t.Errorf("%s: %s on %s is answered with %d, want %d", try.name, try.path, try.queue, got, try.want)
		}
		cases++
	}
	t.Logf("%d tokens of pymacaroons, each accepted or refused as expected", cases)
}

// post sends a request with a token.
func post(t *testing.T, d *daemon, token, path string, request object) *refusal {
	t.Helper()
	err := openHTTP(t, d.http, token).post(t.Context(), path, request, nil)
	if err == nil {
		return nil
	}
	refused, ok := err.(*refusal) //nolint:errorlint // post does not wrap
	if !ok {
		t.Fatal(err)
	}
	return refused
}

var fenced = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestReadmeCurlLinesWork runs the curl lines of the README as written, except for the port, and
// those that the daemon prints when it starts.
func TestReadmeCurlLinesWork(t *testing.T) {
	proctest.Find(t, "bash")
	proctest.Find(t, "curl")
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var lines string
	for _, block := range fenced.FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(block[1], "curl ") {
			lines += block[1]
		}
	}
	program(t) // built before HOME, and so the build cache, changes
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("STATE_DIRECTORY", "")
	defaults := server.Defaults(server.Macronode)
	if !strings.Contains(lines, defaults.Listen) || !strings.Contains(lines, strings.Replace(defaults.DataDir, home, "~", 1)+"/operator.token") {
		t.Errorf("the lines of the README are not for %s and %s:\n%s", defaults.Listen, defaults.DataDir, lines)
	}
	if err := os.MkdirAll(defaults.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := startIn(t, defaults.DataDir, nil)
	answers := shell(t, strings.ReplaceAll(lines, defaults.Listen, d.http))
	if len(answers) != 2 || answers[0]["msg_id"] == nil || answers[0]["duplicate"] != false {
		t.Fatalf("the README's lines are answered with %v", answers)
	}
	messages, _ := answers[1]["messages"].([]any)
	if len(messages) != 1 || messages[0].(map[string]any)["msg_id"] != answers[0]["msg_id"] || messages[0].(map[string]any)["payload_b64"] != base64.StdEncoding.EncodeToString([]byte("Good morning")) {
		t.Errorf("the README's message is received as %v", messages)
	}
	greeting := d.Stdout.String()
	greeting, _, _ = strings.Cut(greeting[strings.Index(greeting, "  curl"):], "\n\n") // the console follows
	if err := post(t, d, d.token, "/v1/purge", object{"topic": "hello"}); err != nil {
		t.Fatal(err)
	}
	greeting = strings.Replace(greeting, `"idem_key":"1"`, `"idem_key":"2"`, 1) // the README has used the first
	parts := strings.Split(strings.TrimSpace(greeting), "\n")
	if len(parts) != 3 {
		t.Fatalf("the daemon prints %d lines to try:\n%s", len(parts), greeting)
	}
	sent := shell(t, parts[0])
	id, _ := sent[0]["msg_id"].(string)
	rest := shell(t, parts[1]+"\n"+strings.Replace(parts[2], "MSG_ID", id, 1))
	if id == "" || len(rest) != 2 || rest[1]["ok"] != true {
		t.Errorf("the daemon's own lines are answered with %v and %v", sent, rest)
	}
	t.Logf("%d lines of the README and %d of the daemon, run by a shell", len(answers), len(parts))
}

// shell runs lines and returns the JSON objects that they print.
func shell(t *testing.T, lines string) []map[string]any {
	t.Helper()
	command := exec.Command("bash", "-euo", "pipefail", "-c", lines)
	var complaint strings.Builder
	command.Stderr = &complaint
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, lines, complaint.String())
	}
	var answers []map[string]any
	for decoder := json.NewDecoder(strings.NewReader(string(text))); decoder.More(); {
		var answer map[string]any
		if err := decoder.Decode(&answer); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		answers = append(answers, answer)
	}
	return answers
}
