package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server"
)

// doctor runs mailbox doctor --json and returns its findings.
type visit struct {
	OK       bool `json:"ok"`
	Findings []struct{ Check, Status, Message, Advice string }
}

func doctor(t *testing.T, environ []string, code int) (found map[string]string, all string) {
	t.Helper()
	r := mailbox(t, environ, "doctor", "--json")
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r.stdout)
	}
	var v visit
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || v.OK != (code == 0) {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	found = make(map[string]string)
	for _, f := range v.Findings {
		found[f.Check] = f.Status
		if f.Status != "ok" && f.Status != "skipped" && f.Advice == "" {
			t.Errorf("%s is %s, and there is no advice", f.Check, f.Status)
		}
	}
	return found, r.stdout
}

func TestDoctorPassesHealthyDaemon(t *testing.T) {
	d := start(t, onDisk())
	found, all := doctor(t, d.environ(), 0)
	for _, check := range []string{"daemon", "readiness", "TLS", "clock", "token", "access", "limits", "frames"} {
		if found[check] != "ok" {
			t.Errorf("%s is %q: %s", check, found[check], all)
		}
	}
	if found["disk"] == "" {
		t.Errorf("the disk was not checked: %s", all)
	}
	if text := d.must(t, "doctor"); strings.Count(text, "\n")+1 != len(found) {
		t.Errorf("a line for each finding, not\n%s", text)
	}
}

func TestDoctorWarnsThatMemoryIsNotDurable(t *testing.T) {
	d := start(t, server.Config{Profile: server.Micronode})
	token := d.OperatorToken()
	found, all := doctor(t, d.environ("MAILBOX_TOKEN="+token.Reveal()), 0)
	if found["durability"] != "warning" {
		t.Errorf("got %s", all)
	}
	if strings.Contains(all, token.Reveal()) {
		t.Error("the token was printed")
	}
}

func TestDoctorFindsProblems(t *testing.T) {
	d := start(t, inMemory())
	narrowed, err := d.OperatorToken().Narrow(capability.ExpiresAt(time.Now().Add(-time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	found, all := doctor(t, d.environ("MAILBOX_TOKEN="+narrowed.Reveal()), 1)
	if found["token"] != "failed" || found["access"] != "failed" || found["daemon"] != "ok" {
		t.Errorf("an expired token: %s", all)
	}
	found, all = doctor(t, []string{"HOME=/nowhere", "MAILBOX_ADDR=" + d.Address(server.HTTP)}, 1)
	if found["token"] != "failed" || found["frames"] != "skipped" {
		t.Errorf("no token: %s", all)
	}
	found, all = doctor(t, d.environ("MAILBOX_OAP_ADDR="+d.Address(server.HTTP)), 1)
	if found["frames"] != "failed" {
		t.Errorf("frames at the address of HTTP: %s", all)
	}
	environ := d.environ()
	d.stop()
	found, all = doctor(t, environ, 1)
	if found["daemon"] != "failed" || found["token"] != "ok" {
		t.Errorf("no daemon: %s", all)
	}
	if _, all = doctor(t, []string{"MAILBOX_ADDR=nonsense://"}, 1); !strings.Contains(all, `"address"`) {
		t.Errorf("no address: %s", all)
	}
}

func TestDoctorFindsWrongClock(t *testing.T) {
	d := start(t, inMemory())
	off := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"ready":false,"degraded":true,"missing":["shards_ready"],"notes":{"plaintext":"beyond this machine"}}`))
		}
	}))
	defer off.Close()
	found, all := doctor(t, d.environ("MAILBOX_ADDR="+off.URL, "MAILBOX_OAP_ADDR=off"), 1)
	if found["clock"] != "failed" || found["readiness"] != "failed" || found["plaintext"] != "warning" || !strings.Contains(all, "check its log") {
		t.Errorf("got %s", all)
	}
}

func TestDoctorListsQueuesWithoutDeliveryLimit(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "queues", "create", "limited")
	d.must(t, "queues", "create", "endless", "--max-attempts", "0")
	r := mailbox(t, d.environ(), "doctor")
	if r.code != 0 || !strings.Contains(r.stdout, "1 queue without a delivery limit: endless:") {
		t.Errorf("exit code %d: %s", r.code, r.stdout)
	}
	d.must(t, "queues", "configure", "endless", "--max-attempts", "3")
	if found, all := doctor(t, d.environ(), 0); found["limits"] != "ok" {
		t.Errorf("after it got a limit: %s", all)
	}
}

func TestDoctorComparesFreeDiskWithReserve(t *testing.T) {
	config := onDisk()
	config.DiskReserve = 3 << 20
	d := start(t, config)
	if _, all := doctor(t, d.environ(), 0); !strings.Contains(all, "3.0 MiB are kept in reserve") {
		t.Errorf("got %s", all)
	}
	for free, want := range map[string]string{"900": "failed", "1900": "warning", "2000": "ok"} {
		told := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				_, _ = w.Write([]byte(`{"ready":true,"notes":{"disk_volume_bytes":"9000","disk_free_bytes":"` + free + `","disk_reserve_bytes":"1000"}}`))
			}
		}))
		code := 0
		if want == "failed" {
			code = 1
		}
		if found, all := doctor(t, d.environ("MAILBOX_ADDR="+told.URL, "MAILBOX_OAP_ADDR=off"), code); found["disk"] != want {
			t.Errorf("with %s bytes free: %s", free, all)
		}
		told.Close()
	}
}

func TestDoctorWarnsOfFullDeadLetters(t *testing.T) {
	d := start(t, inMemory())
	d.must(t, "queues", "create", "jobs", "--max-dead", "1")
	id := d.must(t, "send", "jobs", "x")
	d.must(t, "recv", "jobs")
	d.must(t, "nack", id, "--dead")
	found, all := doctor(t, d.environ(), 0)
	if found["dead letters"] != "warning" || !strings.Contains(all, "--max-dead") {
		t.Errorf("dead letters: %q in %s", found["dead letters"], all)
	}
}
