package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// surfaces are the protocols that carry messages.
var surfaces = []struct {
	name string
	more []string
}{{"oap", nil}, {"http", []string{"MAILBOX_OAP_ADDR=off"}}}

func TestFollowPrintsMessagesUntilInterrupted(t *testing.T) {
	for _, surface := range surfaces {
		t.Run(surface.name, func(t *testing.T) {
			d := start(t, inMemory())
			follower := begin(t, d.environ(surface.more...), strings.NewReader(""), "recv", "news", "--follow", "--ack", "--body")
			d.must(t, "send", "news", "first")
			follower.stdout.await(t, "first\n")
			d.must(t, "send", "news", "second")
			follower.stdout.await(t, "second\n")
			follower.interrupt()
			r := follower.wait()
			r.wantCode(t, 0)
			if stats := d.must(t, "stats", "news", "--json"); !strings.Contains(stats, `"ready":0,"delayed":0,"in_flight":0`) {
				t.Errorf("a printed message is not acked: %s", stats)
			}
		})
	}
}

func TestFollowSurvivesDaemonRestart(t *testing.T) {
	for _, surface := range surfaces {
		t.Run(surface.name, func(t *testing.T) {
			d := start(t, onDisk())
			follower := begin(t, d.environ(surface.more...), strings.NewReader(""), "recv", "news", "--follow", "--ack", "--body")
			d.must(t, "send", "news", "before")
			follower.stdout.await(t, "before\n")
			for !strings.Contains(d.must(t, "stats", "news", "--json"), `"in_flight":0`) {
				continue // until it is acked
			}
			config := d.Config()
			config.Listen, config.ListenOAP = d.Address(server.HTTP), d.Address(server.OAP)
			d.stop()
			again := start(t, config)
			again.must(t, "send", "news", "after")
			follower.stdout.await(t, "after\n")
			follower.interrupt()
			if r := follower.wait(); r.code != 0 || r.stdout != "before\nafter\n" {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestFollowEndsAfterMax(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "news", "one")
	d.must(t, "send", "news", "two")
	if got := d.must(t, "recv", "news", "--follow", "--max", "1", "--ack", "--body"); got != "one" {
		t.Errorf("got %q", got)
	}
}

func TestReceiveWaitsForMessage(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "queues", "create", "later")
	receiver := begin(t, d.environ(), strings.NewReader(""), "recv", "later", "--wait", "1m", "--ack", "--body")
	d.must(t, "send", "later", "here", "--delay", "100ms")
	if r := receiver.wait(); r.stdout != "here\n" || r.code != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestBinaryBodiesAreEscapedOnTerminal(t *testing.T) {
	d := start(t, inMemory())
	body := "\x1b[2Jboo\n\xff"
	sent := begin(t, d.environ(), strings.NewReader(body), "send", "raw").wait()
	sent.wantCode(t, 0)
	id, shown, _ := strings.Cut(d.must(t, "recv", "raw"), "\t")
	if shown != `"\x1b[2Jboo\n\xff"` {
		t.Errorf("shown as %q", shown)
	}
	d.must(t, "extend", id, "--visibility", "0s")
	if raw := d.must(t, "recv", "raw", "--body"); raw != body {
		t.Errorf("--body printed %q", raw)
	}
	var view struct {
		Body    *string `json:"body"`
		BodyB64 []byte  `json:"body_b64"`
	}
	if err := json.Unmarshal([]byte(d.must(t, "peek", "raw", "--json")), &view); err != nil || view.Body != nil || string(view.BodyB64) != body {
		t.Errorf("JSON has %+v, %v", view, err)
	}
}

func TestInterruptedReceiveReportsInterruption(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "queues", "create", "never") // one that does not exist is answered at once
	receiver := begin(t, d.environ(), strings.NewReader(""), "recv", "never", "--wait", "10m")
	receiver.interrupt()
	r := receiver.wait()
	r.wantCode(t, 130, "interrupted")
}

func TestUnprintedMessageIsReleased(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "send", "q", "body")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("this system has no /dev/full: %v", err)
	}
	defer full.Close()
	r := runTo(t, d.environ(), full, "recv", "q", "--ack")
	r.wantCode(t, 1, "cannot be written")
	if stats := d.must(t, "stats", "q", "--json"); !strings.Contains(stats, `"ready":1`) {
		t.Errorf("the message is not ready again: %s", stats)
	}
}

func TestLongLinesAndManyLinesAreSentInOrder(t *testing.T) {
	for _, surface := range surfaces {
		t.Run(surface.name, func(t *testing.T) {
			d := start(t, inMemory())
			var lines strings.Builder
			for i := range 1000 {
				fmt.Fprintf(&lines, "%d %s\n", i, strings.Repeat("x", i))
			}
			path := filepath.Join(t.TempDir(), "lines")
			if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			environ := d.environ(surface.more...)
			if r := mailbox(t, environ, "send", "q", "--lines", "--file", path); r.code != 0 || strings.Count(r.stdout, "\n") != 1000 {
				t.Fatalf("%d ids, exit code %d: %s", strings.Count(r.stdout, "\n"), r.code, r.stderr)
			}
			if r := mailbox(t, environ, "recv", "q", "--max", "2000", "--ack", "--body"); r.stdout != lines.String() {
				t.Errorf("%d bytes came back of %d, or in another order", len(r.stdout), lines.Len())
			}
		})
	}
}

func TestSendLinesNamesSkipAfterLimit(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "queues", "create", "small", "--max-messages", "2")
	r := begin(t, d.environ(), strings.NewReader("a\nb\nc\nd\n"), "send", "small", "--lines").wait()
	r.wantCode(t, 6, "stopped after line 2", "--skip 2")
	if strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("ids: %s", r.stdout)
	}
	d.must(t, "queues", "purge", "small", "--yes")
	r = begin(t, d.environ(), strings.NewReader("a\nb\nc\nd\n"), "send", "small", "--lines", "--skip", "2").wait()
	r.wantCode(t, 0)
	if got := d.must(t, "recv", "small", "--max", "9", "--body", "--ack"); got != "c\nd" {
		t.Errorf("got %q", got)
	}
}

func TestFailedLinesAreNamed(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "queues", "create", "narrow", "--max-bytes", "4")
	r := begin(t, d.environ(), strings.NewReader("aa\nbbbbbbbb\ncc\n"), "send", "narrow", "--lines").wait()
	r.wantCode(t, 6, "these were not sent: 2", "--skip 3")
}

func TestTooLongLineIsNamed(t *testing.T) {
	d := start(t, inMemory())
	r := begin(t, d.environ(), strings.NewReader("a\n"+strings.Repeat("x", 2<<20)+"\n"), "send", "q", "--lines").wait()
	r.wantCode(t, 2, "line 2")
	if got := d.must(t, "stats", "q", "--json"); !strings.Contains(got, `"ready":1`) {
		t.Errorf("the line before it was not sent: %s", got)
	}
}

func TestTooLargeBodiesAreRefused(t *testing.T) {
	d := start(t, inMemory())
	for _, size := range []int{900 << 10, 2 << 20} {
		for _, surface := range surfaces {
			r := begin(t, d.environ(surface.more...), strings.NewReader(strings.Repeat("x", size)), "send", "q").wait()
			r.wantCode(t, 2, "too large")
		}
	}
}

func TestBadNamesAndFlagsAreRefusedFirst(t *testing.T) {
	d := start(t, inMemory())
	for _, args := range [][]string{
		{"send", "a{b}", "x"},
		{"send", "q", "x", "--delay", "9000h"},
		{"send", "q", "x", "--at", "2999-01-01T00:00:00Z"},
		{"send", "q", "x", "--ttl", "9999h"},
		{"send", "q", "x", "--at", "2026-01-01T00:00:00Z", "--delay", "1s"},
		{"send", "q", "x", "--file", "y"},
		{"send", "q", "x", "--lines"},
		{"send", "q", "x", "--attr", "nonsense"},
		{"send", "q", "x", "--skip", "1"},
		{"send", "q", "--file", "/does/not/exist"},
		{"recv", "q", "--max", "0"},
		{"recv", "q", "--wait", "-1s"},
		{"recv", "q", "--visibility", "13h"},
		{"recv"},
		{"recv", "a", "b"},
		{"ack"},
		{"ack", "x", "--receipt", "y"},
		{"nack", "x", "--dead", "--delay", "1s"},
		{"peek", "q", "--limit", "-1"},
		{"dlq", "ls", "q", "--limit", "-1"},
		{"bench", "--producers", "0"},
		{"bench", "--batch", "1000"},
		{"bench", "--size", "1"},
		{"bench", "--duration", "0s"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			r := d.mailbox(t, args...)
			r.wantCode(t, 2, "mailbox: ")
			if r.stdout != "" {
				t.Errorf("printed %s", r.stdout)
			}
		})
	}
	if queues := d.must(t, "queues", "ls"); strings.Trim(queues, "q\n") != "" {
		t.Errorf("there are queues: %q", queues)
	}
}

func TestSocketServesEveryCommand(t *testing.T) {
	config := inMemory()
	config.Socket = filepath.Join(t.TempDir(), "s")
	d := start(t, config)
	environ := []string{"MAILBOX_ADDR=unix:" + d.Address(server.Socket), "MAILBOX_TOKEN_FILE=" + d.tokenFile()}
	r := mailbox(t, environ, "send", "q", "hello")
	r.wantCode(t, 0)
	if r = mailbox(t, environ, "recv", "q", "--ack", "--body"); r.stdout != "hello\n" {
		t.Errorf("got %+v", r)
	}
	if r = mailbox(t, environ, "doctor"); r.code != 0 || !strings.Contains(r.stdout, "unix socket") {
		t.Errorf("got %+v", r)
	}
}

func TestPeekSearchesAndGoesOn(t *testing.T) {
	d := start(t, inMemory())
	for i := range 4 {
		d.must(t, "send", "orders", fmt.Sprintf("total %d", i), "--group", "g")
	}
	r := d.mailbox(t, "peek", "orders", "--text", "total", "--group", "g", "--priority", "0", "--within", "30s", "--limit", "3")
	r.wantCode(t, 0)
	_, cursor, ok := strings.Cut(strings.TrimSpace(r.stderr), "looked at 3 ready; go on with --cursor ")
	if !ok || strings.Count(r.stdout, "total") != 3 {
		t.Fatalf("printed %q and %q", r.stdout, r.stderr)
	}
	r = d.mailbox(t, "peek", "orders", "--text", "total", "--cursor", cursor)
	r.wantCode(t, 0)
	if !strings.Contains(r.stdout, "total 3") || strings.Count(r.stdout, "total") != 1 || !strings.Contains(r.stderr, "looked at 1 ready: all that were left") {
		t.Errorf("going on printed %q and %q", r.stdout, r.stderr)
	}
	if got := d.must(t, "peek", "orders", "--text", "nowhere", "--within", "1s", "--json"); !strings.Contains(got, `"cursor":""`) || !strings.Contains(got, `"ready":4`) {
		t.Errorf("JSON has %s", got)
	}
	for _, wrong := range [][]string{{"--priority", "10"}, {"--within", "0s"}} {
		if r := d.mailbox(t, append([]string{"peek", "orders"}, wrong...)...); r.code != 2 {
			t.Errorf("%q: code %d, %s", wrong, r.code, r.stderr)
		}
	}
}
