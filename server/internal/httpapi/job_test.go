package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// makeDead sends messages and dead-letters them.
func (d *env) makeDead(queue string, n int) {
	d.t.Helper()
	for i := range n {
		sent := d.post("/v1/send", fmt.Sprintf(`{"topic":%q,"idem_key":"k%d","payload_b64":"YQ==","group":"g%d"}`, queue, i, i%2))
		d.expect(sent, 200, "")
		d.expect(d.post("/v1/recv", fmt.Sprintf(`{"topic":%q,"visibility_ms":60000}`, queue)), 200, "")
		id := fmt.Sprint(sent.fields["msg_id"])
		d.expect(d.post("/v1/bury/"+id, `{"reason":"fatal","error":"refused after 3 s"}`), 200, "")
	}
}

// TestJobOverHTTP is CON-2: a selection is counted, redriven as a job with progress, and stopped.
func TestJobOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.makeDead("t", 20)
		started := func(body string) answer {
			a := d.post("/v1/jobs/start", body)
			d.expect(a, 200, "")
			return a
		}
		show := func(a answer) answer {
			a = d.post("/v1/jobs/get", fmt.Sprintf(`{"job_id":%q}`, a.fields["job_id"]))
			d.expect(a, 200, "")
			return a
		}
		cause := d.post("/v1/dlq/list", `{"topic":"t","limit":1}`).fields["cause"]
		counted := started(fmt.Sprintf(`{"topic":"t","action":"count","group":"g1","cause":%q}`, cause))
		time.Sleep(time.Second)
		if a := show(counted); a.fields["state"] != "done" || a.fields["done"] != 10.0 || a.fields["looked"] != 20.0 || a.fields["ended_at"] == nil {
			t.Errorf("%s", a.body)
		}
		job := started(`{"topic":"t","action":"redrive","rate":2,"limit":15}`)
		if job.fields["state"] != "running" || job.fields["total"] != 20.0 || job.fields["token"] != d.token.ID().String() || job.fields["rate"] != 2.0 {
			t.Errorf("%s", job.body)
		}
		time.Sleep(2*time.Second + time.Millisecond)
		if a := show(job); a.fields["done"] != 5.0 || a.fields["state"] != "running" {
			t.Errorf("%s", a.body)
		}
		stopped := d.post("/v1/jobs/stop", fmt.Sprintf(`{"job_id":%q}`, job.fields["job_id"]))
		d.expect(stopped, 200, "")
		if stopped.fields["state"] != "stopped" || stopped.fields["done"] != 5.0 || !strings.Contains(fmt.Sprint(stopped.fields["why"]), "stopped by token") {
			t.Errorf("%s", stopped.body)
		}
		rest := started(fmt.Sprintf(`{"topic":"t","action":"redrive","until":%q}`, stopped.fields["until"]))
		time.Sleep(time.Second)
		if a := show(rest); a.fields["state"] != "done" || a.fields["done"] != 15.0 {
			t.Errorf("%s", a.body)
		}
		for body, want := range map[string]int{`{"topic":"t"}`: 3, ``: 3, `{"topic":"u"}`: 0} {
			list := d.post("/v1/jobs/list", body)
			if n := strings.Count(list.body, `"job_id"`); n != want || want > 0 && !strings.HasPrefix(list.body, `{"job_id":"`+rest.fields["job_id"].(string)) {
				t.Errorf("%s lists %d jobs, want %d: %s", body, n, want, list.body)
			}
		}
	})
}

// TestCausesOverHTTP is CON-2: dead letters by cause, with how far it looked; a cause selects in a peek and a job.
func TestCausesOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.makeDead("t", 3)
		d.expect(d.post("/v1/send", `{"topic":"t","idem_key":"h","payload_b64":"YQ=="}`), 200, "")
		got := d.post("/v1/recv", `{"topic":"t","visibility_ms":60000}`)
		hostile := "</script>\"\u001b[2J\n\u202e" + strings.Repeat("ü", 600)
		_, id, _ := strings.Cut(got.body, `"msg_id":"`)
		error, err := json.Marshal(hostile)
		if err != nil {
			t.Fatal(err)
		}
		d.expect(d.post("/v1/bury/"+id[:26], fmt.Sprintf(`{"reason":"parse","error":%s}`, error)), 200, "")
		read := func(body string) (causes []map[string]any, extent map[string]any) {
			a := d.post("/v1/dlq/causes", body)
			d.expect(a, 200, "")
			for text := range strings.Lines(a.body) {
				extent = nil
				if err := json.Unmarshal([]byte(text), &extent); err != nil {
					t.Fatal(err)
				}
				causes = append(causes, extent)
			}
			return causes[:len(causes)-1], extent
		}
		causes, extent := read(`{"topic":"t"}`)
		if fmt.Sprint(extent) != "map[causes:2 cursor: looked:map[dead:4] selected:4]" || len(causes) != 2 {
			t.Fatalf("%v, %v", causes, extent)
		}
		first, second := causes[0], causes[1]
		if first["messages"] != 3.0 || first["words"] != "refused after … s" || first["last_error"] != "refused after 3 s" || first["reason"] != "fatal" || first["topic"] != "t" ||
			first["first_dead_at"] == nil || first["last_dead_at"] == nil || first["cause"] != d.post("/v1/dlq/list", `{"topic":"t","limit":1}`).fields["cause"] {
			t.Errorf("%v", first)
		}
		if text := fmt.Sprint(second["last_error"]); !strings.HasPrefix(hostile, strings.TrimSuffix(text, "…")) || len([]rune(text)) != 501 || strings.Contains(fmt.Sprint(second["words"]), "\n") {
			t.Errorf("%q", second)
		}
		if some, extent := read(`{"topic":"t","limit":1,"group":"g1","cursor":"","within_ms":5}`); len(some) != 1 || some[0]["messages"] != 1.0 || extent["selected"] != 1.0 {
			t.Errorf("of a group: %v, %v", some, extent)
		}
		for _, peeked := range []answer{
			d.post("/v1/peek", fmt.Sprintf(`{"topic":"t","cause":%q}`, first["cause"])), d.page(fmt.Sprintf("/v1/queues/t/messages?cause=%s", first["cause"])),
		} {
			if n := strings.Count(peeked.body, `"msg_id"`); n != 3 || strings.Count(peeked.body, "refused after 3 s") != 3 {
				t.Errorf("a peek with a cause: %s", peeked.body)
			}
		}
		d.expect(d.post("/v1/jobs/start", fmt.Sprintf(`{"topic":"t","action":"discard","cause":%q}`, first["cause"])), 200, "")
		time.Sleep(time.Second)
		if left, _ := read(`{"topic":"t"}`); len(left) != 1 || left[0]["cause"] != second["cause"] {
			t.Errorf("after a discard of a cause: %v", left)
		}
		for request, field := range map[string]string{
			`{}`: "topic", `{"topic":"t","cursor":"r"}`: "cursor", `{"topic":"t","within_ms":60000}`: "within_ms", `{"topic":"t","limit":-1}`: "limit", `{"topic":"t","states":["dead"]}`: "body",
		} {
			if got := d.post("/v1/dlq/causes", request); got.status != 400 || got.fields["field"] != field {
				t.Errorf("%s: got %d %s, want a refusal of %s", request, got.status, got.body, field)
			}
		}
		d.expect(d.post("/v1/dlq/causes", `{"topic":"missing"}`), 404, "E_NOT_FOUND")
		looker := d.mint(t, "", capability.Operations(capability.OpPeek), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour))).Reveal()
		d.expect(d.do(t.Context(), looker, "/v1/dlq/causes", strings.NewReader(`{"topic":"t"}`)), 403, "E_CAP_SCOPE")
		d.expect(d.do(t.Context(), d.mint(t, "acme").Reveal(), "/v1/dlq/causes", strings.NewReader(`{"topic":"t"}`)), 404, "E_NOT_FOUND")
		d.expect(d.do(t.Context(), "", "/v1/dlq/causes", strings.NewReader(`{"topic":"t"}`)), 401, "E_CAP_AUTH")
	})
}

func TestJobRequestsThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.makeDead("t", 1)
		for _, body := range []string{
			`{}`, `{"topic":"t"}`, `{"action":"count"}`, `{"topic":"t","action":"purge"}`, `{"topic":"t","action":"count","rate":-1}`, `{"topic":"t","action":"count","until":"now"}`,
			`{"topic":"t","action":"count","limit":-1}`, `{"topic":"t","action":"count","priority":10}`, `{"topic":"t","action":"count","states":["ready"]}`,
		} {
			d.expect(d.post("/v1/jobs/start", body), 400, "E_SCHEMA")
		}
		d.expect(d.post("/v1/jobs/start", `{"topic":"missing","action":"count"}`), 404, "E_NOT_FOUND")
		d.expect(d.post("/v1/jobs/get", `{}`), 400, "E_SCHEMA")
		d.expect(d.post("/v1/jobs/get", `{"job_id":"x"}`), 404, "E_NOT_FOUND")
		d.expect(d.post("/v1/jobs/stop", `{"job_id":"x"}`), 404, "E_NOT_FOUND")
		d.expect(d.post("/v1/jobs/stop", `{"job_id":"x"}`, "X-Mailbox-Tenant", "acme"), 400, "E_SCHEMA")
	})
}
