package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

var receipt = regexp.MustCompile(`"receipt":"([^"]+)"`)

// kill makes dead letters, a multiple of 32, in a queue that allows one delivery.
func (d *daemon) kill(t *testing.T, queue string, count int) {
	t.Helper()
	for range count / 32 {
		d.post(t, "/v1/send/batch", `{"topic":"`+queue+`","messages":[`+strings.Repeat(`{"idem_key":"","payload_b64":""},`, 31)+`{"idem_key":"","payload_b64":""}]}`)
		receipts := receipt.FindAllStringSubmatch(d.post(t, "/v1/recv", `{"topic":"`+queue+`","max_messages":32,"visibility_ms":600000}`), -1)
		for _, r := range receipts {
			d.post(t, "/v1/nack", `{"topic":"`+queue+`","nacks":[{"receipt":"`+r[1]+`"}]}`)
		}
	}
}

// TestCausesAreListedAndSelectedByCommands is CON-2 at the command line: a hostile error stays one line of text.
func TestCausesAreListedAndSelectedByCommands(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "queues", "create", "q", "--max-attempts", "1")
	for _, text := range []string{"refused after 1 s", "refused after 2 s", "\x1b[2Jgone \u202e</script>\nsecond line"} {
		d.must(t, "send", "q", "body")
		receipt := receipt.FindStringSubmatch(d.post(t, "/v1/recv", `{"topic":"q","visibility_ms":600000}`))[1]
		error, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		d.post(t, "/v1/nack", `{"topic":"q","nacks":[{"receipt":"`+receipt+`","reason":`+string(error)+`}]}`)
	}
	r := d.mailbox(t, "dlq", "causes", "q")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if r.code != 0 || len(lines) != 3 || !strings.HasSuffix(lines[1], "refused after … s") || !strings.HasSuffix(lines[2], `"\x1b[…Jgone \u202e</script> second line"`) ||
		strings.TrimSpace(r.stderr) != "looked at 3 dead letters: 3 selected, in 2 causes" {
		t.Errorf("%+v", r)
	}
	cause, _, _ := strings.Cut(lines[1], " ")
	got := d.must(t, "dlq", "causes", "q", "--json", "--cause", cause, "--within", "5s", "--text", "body")
	if strings.Count(got, `"cause":"`) != 1 || !strings.Contains(got, `"messages":2,`) || !strings.Contains(got, `{"looked":{"dead":3},"selected":2,"causes":1,"cursor":""}`) {
		t.Errorf("%s", got)
	}
	if got := d.must(t, "peek", "q", "--cause", cause, "--json"); strings.Count(got, `"cause":"`+cause) != 2 {
		t.Errorf("%s", got)
	}
	if got := d.must(t, "dlq", "redrive", "q", "--cause", cause); got != "2 dead letters redriven in q" {
		t.Errorf("%q", got)
	}
	if got := d.must(t, "dlq", "ls", "q", "--cause", cause); got != "" {
		t.Errorf("%q", got)
	}
	if r := d.mailbox(t, "dlq", "causes", "q", "--cursor", "nonsense"); r.code == 0 || !strings.Contains(r.stderr, "cursor") {
		t.Errorf("%+v", r)
	}
	d.mailbox(t, "dlq", "causes", "q", "--limit", "-1").wantCode(t, 2, "--limit cannot be negative")
}

// TestRedriveIsJobThatInterruptStops is CON-2 at the command line: progress can be watched, and Ctrl-C stops the job.
func TestRedriveIsJobThatInterruptStops(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "queues", "create", "q", "--max-attempts", "1")
	d.kill(t, "q", 320) // enough that a job with a rate of 1 does not end before it is stopped
	if got := d.must(t, "jobs", "ls"); got != "" {
		t.Errorf("without jobs: %q", got)
	}
	if got := d.must(t, "dlq", "redrive", "q", "--all", "--dry-run"); got != "320 dead letters would be redriven in q" {
		t.Errorf("%q", got)
	}
	command := begin(t, d.environ(), nil, "dlq", "redrive", "q", "--all", "--rate", "1")
	var line string
	for !strings.Contains(line, `"action":"redrive"`) || strings.Contains(line, `"done":0`) {
		line, _, _ = strings.Cut(d.must(t, "jobs", "ls", "q", "--json"), "\n")
	}
	id := strings.Split(line, `"`)[3]
	if shown := d.must(t, "jobs", "show", id); !strings.Contains(shown, "redrive") || !strings.Contains(shown, "running") || !strings.Contains(shown, "of 320") {
		t.Errorf("%q", shown)
	}
	command.interrupt()
	if r := command.wait(); r.code == 0 || !strings.Contains(r.stdout, "redriven in q") {
		t.Errorf("%+v", r)
	}
	if shown := d.must(t, "jobs", "show", id, "--json"); !strings.Contains(shown, `"state":"stopped"`) || !strings.Contains(shown, "stopped by token") {
		t.Errorf("%q", shown)
	}
	d.mailbox(t, "jobs", "stop", "none").wantCode(t, 5, "jobs are forgotten after a day")
	slow := begin(t, d.environ(), nil, "dlq", "discard", "q", "--all", "--yes", "--rate", "1")
	for {
		line, _, _ = strings.Cut(d.must(t, "jobs", "ls", "q", "--json"), "\n")
		if strings.Contains(line, `"action":"discard"`) {
			break
		}
	}
	d.must(t, "jobs", "stop", strings.Split(line, `"`)[3])
	slow.wait().wantCode(t, 1, "the job ended early: stopped by token")
	d.must(t, "dlq", "discard", "q", "--all", "--yes")
	if got := d.must(t, "dlq", "ls", "q"); got != "" {
		t.Errorf("%q", got)
	}
}

// TestRedriveGoesOnAfterRestart restarts the daemon, which forgets the job, while a command watches it.
func TestRedriveGoesOnAfterRestart(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "queues", "create", "q", "--max-attempts", "1")
	d.kill(t, "q", 64)
	command := begin(t, d.environ(), nil, "dlq", "redrive", "q", "--all", "--rate", "20")
	for !strings.Contains(d.must(t, "jobs", "ls", "q", "--json"), `"action":"redrive"`) {
		continue
	}
	config := onDisk()
	config.DataDir, config.Listen, config.ListenOAP = d.dir, d.Address(server.HTTP), d.Address(server.OAP)
	d.stop()
	d = start(t, config)
	command.wait().wantCode(t, 0, "")
	if got := d.must(t, "stats", "q", "--json"); !strings.Contains(got, `"ready":64`) || !strings.Contains(got, `"dead":0`) {
		t.Errorf("after a redrive of 64 dead letters: %s", got)
	}
}
