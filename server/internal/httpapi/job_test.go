package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
