package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/server"
)

// TestDeadLettersSurviveExactlyWherePromised is I-16 on Redis: it compares what readiness,
// metrics and log say about dead letters with what is left of one after
// Redis was killed and restarted.
func TestDeadLettersSurviveExactlyWherePromised(t *testing.T) {
	for name, test := range map[string]struct {
		redis               []redistest.Option
		profile, durability string
	}{
		"volatile":      {nil, "ephemeral", "none"},
		"synced always": {[]redistest.Option{redistest.AppendOnly(redistest.FsyncAlways)}, "durable", "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Standalone(t, test.redis...)
			r := start(t, server.Config{DataDir: t.TempDir(), Backend: "redis://" + redis.Addr()})
			ready := r.get("/readyz")
			for _, want := range []string{
				fmt.Sprintf(`"dlq_profile":%q`, test.profile), fmt.Sprintf(`"durability":%q`, test.durability),
			} {
				if !strings.Contains(ready, want) {
					t.Errorf("readiness lacks %s: %s", want, ready)
				}
			}
			if info := fmt.Sprintf(`dlq_profile=%q`, test.profile); !strings.Contains(r.get("/metrics"), info) {
				t.Errorf("the metrics lack %s", info)
			}
			for _, warning := range []string{"may not survive a restart", "unsafe Redis server"} {
				if warned := strings.Contains(r.log.String(), warning); warned != (test.profile == "ephemeral") {
					t.Errorf("the log warns that %q: %v", warning, warned)
				}
			}
			id := r.send("orders", "k", "SGk=")
			r.receive("orders")
			if status, fields := r.post(r.OperatorToken(), "/v1/bury/"+id, `{"reason":"fatal"}`); status != http.StatusOK {
				t.Fatal(fields)
			}
			redis.Kill()
			if err := redis.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := 0.0
			if test.profile == "durable" {
				want = 1
			}
			if status, stats := r.post(r.OperatorToken(), "/v1/stats", `{"topic":"orders"}`); stats["dead"] != want && (want == 1 || status != http.StatusNotFound) {
				t.Errorf("after a restart of Redis: %d %v, want %v dead letters", status, stats, want)
			}
		})
	}
}

// TestFullDeadLettersDegradeReadiness is DLQ-5: the daemon still serves, and reports
// the problem.
func TestFullDeadLettersDegradeReadiness(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode})
	operator := r.OperatorToken()
	if status, fields := r.post(operator, "/v1/queues/configure", `{"topic":"orders","config":{"max_dead":1}}`); status != http.StatusOK {
		t.Fatal(fields)
	}
	if text := r.get("/readyz"); !strings.Contains(text, `"ready":true,"degraded":false`) {
		t.Errorf("before: %s", text)
	}
	id := r.send("orders", "k", "SGk=")
	r.receive("orders")
	if status, fields := r.post(operator, "/v1/bury/"+id, `{"reason":"fatal"}`); status != http.StatusOK {
		t.Fatal(fields)
	}
	const want = `"ready":true,"degraded":true`
	for began := time.Now(); ; { // figures are taken once a second
		text := r.get("/readyz")
		if strings.Contains(text, want) && strings.Contains(text, "dead_letters_full") {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("with full dead letters: %s, want %s", text, want)
		}
	}
}
