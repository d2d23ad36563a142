package cli_test

import (
	"regexp"
	"strings"
	"testing"
)

var receipt = regexp.MustCompile(`"receipt":"([^"]+)"`)

// TestRedriveIsJobThatInterruptStops is CON-2 at the command line: progress can be watched, and Ctrl-C stops the job.
func TestRedriveIsJobThatInterruptStops(t *testing.T) {
	d := start(t, onDisk())
	d.must(t, "queues", "create", "q", "--max-attempts", "1")
	for range 10 { // enough that a job with a rate of 1 does not end before it is stopped
		d.post(t, "/v1/send/batch", `{"topic":"q","messages":[`+strings.Repeat(`{"idem_key":"","payload_b64":""},`, 31)+`{"idem_key":"","payload_b64":""}]}`)
		receipts := receipt.FindAllStringSubmatch(d.post(t, "/v1/recv", `{"topic":"q","max_messages":32,"visibility_ms":600000}`), -1)
		for _, r := range receipts {
			d.post(t, "/v1/nack", `{"topic":"q","nacks":[{"receipt":"`+r[1]+`"}]}`)
		}
	}
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
