package httpapi_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// scheduling runs a test in virtual time, with a daemon that runs schedules and a queue t.
func scheduling(t *testing.T, limits broker.Limits, test func(t *testing.T, d *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, limits, driver.Config{})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.broker.RunSchedules(ctx)
		}()
		d.expect(d.post("/v1/queues/configure", `{"topic":"t","config":{}}`), 200, "")
		test(t, d)
		cancel()
		<-ended
	})
}

func TestSchedulesAreManagedOverHTTP(t *testing.T) {
	scheduling(t, broker.Limits{}, func(t *testing.T, d *env) {
		a := d.post("/v1/schedules/put", `{"topic":"t","name":"daily","cron":"0 6 * * *","zone":"Europe/Berlin","payload_b64":"YQ==","attrs":{"colour":"red"},"catch_up":"all","paused":true}`)
		if d.expect(a, 200, ""); a.fields["paused"] != true || len(a.fields["upcoming"].([]any)) != 0 || a.fields["topic"] != "t" || a.fields["payload_b64"] != "YQ==" {
			t.Errorf("put: %s", a.body)
		}
		a = d.post("/v1/schedules/resume", `{"topic":"t","name":"daily"}`)
		if d.expect(a, 200, ""); a.fields["paused"] != false || a.fields["upcoming"].([]any)[0] != "2000-01-01T06:00:00+01:00" {
			t.Errorf("resume: %s", a.body)
		}
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		a = d.post("/v1/recv", `{"topic":"t","max_messages":10,"visibility_ms":60000}`)
		messages := a.fields["messages"].([]any)
		if len(messages) != 2 {
			t.Fatalf("received %s", a.body)
		}
		first := messages[0].(map[string]any)
		if attrs := first["attrs"].(map[string]any); first["payload_b64"] != "YQ==" || attrs["colour"] != "red" || attrs["mailbox.schedule.due"] != "2000-01-01T05:00:00Z" {
			t.Errorf("received %v", first)
		}
		a = d.post("/v1/schedules/pause", `{"topic":"t","name":"daily"}`)
		if d.expect(a, 200, ""); a.fields["paused"] != true {
			t.Errorf("pause: %s", a.body)
		}
		a = d.post("/v1/schedules/run", `{"topic":"t","name":"daily"}`)
		if d.expect(a, 200, ""); a.fields["msg_id"] == "" || a.fields["due_at"] != nil {
			t.Errorf("run: %s", a.body)
		}
		a = d.post("/v1/schedules/get", `{"topic":"t","name":"daily"}`)
		runs := a.fields["runs"].([]any)
		if len(runs) != 3 || runs[0].(map[string]any)["outcome"] != "delivered" || runs[2].(map[string]any)["outcome"] != "sent" ||
			runs[0].(map[string]any)["due_at"] != "2000-01-01T05:00:00Z" || a.fields["through"] == nil {
			t.Errorf("get: %s", a.body)
		}
		a = d.post("/v1/schedules/list", `{"topic":"t"}`)
		if d.expect(a, 200, ""); !strings.HasPrefix(a.body, `{"name":"daily","cron":"0 6 * * *","zone":"Europe/Berlin","catch_up":"all","paused":true,"created_at":"2000-01-01T00:00:00Z","last_run":{"sent_at":`) ||
			strings.Count(a.body, "\n") != 1 {
			t.Errorf("list: %s", a.body)
		}
		d.expect(d.post("/v1/schedules/delete", `{"topic":"t","name":"daily"}`), 200, "")
		d.expect(d.post("/v1/schedules/delete", `{"topic":"t","name":"daily"}`), 404, "E_NOT_FOUND")
		if a = d.post("/v1/schedules/list", `{"topic":"t"}`); a.body != "" {
			t.Errorf("list: %s", a.body)
		}
	})
}

func TestWrongSchedulesAreRefusedOverHTTP(t *testing.T) {
	scheduling(t, broker.Limits{MaxSchedules: 1}, func(t *testing.T, d *env) {
		large := base64.StdEncoding.EncodeToString(make([]byte, 64<<10+1))
		for _, wrong := range []struct{ fields, field, detail string }{
			{`"name":"n","cron":"61 * * * *"`, "cron", "61"},
			{`"name":"n"`, "cron", "either a cron expression or an interval"},
			{`"name":"n","cron":"@daily","every_ms":60000`, "cron", "either a cron expression or an interval"},
			{`"name":"n","cron":"@daily","zone":"Moon/Sea"`, "zone", "Moon/Sea"},
			{`"name":"n","cron":"@daily","zone":"Local"`, "zone", "Local"},
			{`"name":"n","every_ms":999`, "every_ms", "1s"},
			{`"name":"n","every_ms":1000.5`, "every_ms", "milliseconds"},
			{`"name":"n","every_ms":31622400001`, "every_ms", "8784h"},
			{`"name":"n","every_ms":60000,"zone":"UTC"`, "zone", "interval"},
			{`"name":"n","every_ms":60000,"catch_up":"some"`, "catch_up", "none, one or all"},
			{`"every_ms":60000`, "name", "missing"},
			{fmt.Sprintf(`"name":%q,"every_ms":60000`, strings.Repeat("n", 129)), "name", "128"},
			{`"name":"n\u0007","every_ms":60000`, "name", "printed"},
			{`"name":"n","every_ms":60000,"payload_b64":"` + large + `"`, "payload_b64", "65536"},
			{`"name":"n","every_ms":60000,"attrs":{"":"x"}`, "attrs", ""},
		} {
			a := d.post("/v1/schedules/put", `{"topic":"t",`+wrong.fields+`}`)
			d.expect(a, 400, "E_SCHEMA")
			if detail, _ := a.fields["detail"].(string); a.fields["field"] != wrong.field || !strings.Contains(detail, wrong.detail) {
				t.Errorf("%.100s: %.300s", wrong.fields, a.body)
			}
		}
		d.expect(d.post("/v1/schedules/put", `{"topic":"unknown","name":"n","every_ms":60000}`), 404, "E_NOT_FOUND")
		d.expect(d.post("/v1/schedules/put", `{"topic":"t","name":"n","every_ms":60000}`), 200, "")
		a := d.post("/v1/schedules/put", `{"topic":"t","name":"m","every_ms":60000}`)
		if d.expect(a, 429, "E_SATURATED"); !strings.Contains(a.body, "max_schedules 1") {
			t.Errorf("one too many: %s", a.body)
		}
		for _, path := range []string{"get", "pause", "resume", "run", "delete"} {
			a := d.post("/v1/schedules/"+path, `{"topic":"t","name":"unknown"}`)
			if d.expect(a, 404, "E_NOT_FOUND"); a.fields["field"] != "name" {
				t.Errorf("%s: %s", path, a.body)
			}
			d.expect(d.post("/v1/schedules/"+path, `{"topic":"unknown","name":"n"}`), 404, "E_NOT_FOUND")
			d.expect(d.post("/v1/schedules/"+path, `{"topic":"t"}`), 400, "E_SCHEMA")
			d.expect(d.post("/v1/schedules/"+path, `{"name":"n"}`), 400, "E_SCHEMA")
			d.expect(d.post("/v1/schedules/"+path, `{"topic":"t","name":"n","more":1}`), 400, "E_SCHEMA")
		}
		whole := d.token
		for _, operation := range []capability.Operation{capability.OpSend, capability.OpAdmin} {
			narrow, err := whole.Narrow(capability.Operations(operation))
			if err != nil {
				t.Fatal(err)
			}
			d.token = narrow
			d.expect(d.post("/v1/schedules/put", `{"topic":"t","name":"n","every_ms":60000}`), 403, "E_CAP_SCOPE")
			d.expect(d.post("/v1/schedules/run", `{"topic":"t","name":"n"}`), 403, "E_CAP_SCOPE")
			if operation == capability.OpSend {
				for _, path := range []string{"get", "pause", "resume", "delete"} {
					d.expect(d.post("/v1/schedules/"+path, `{"topic":"t","name":"n"}`), 403, "E_CAP_SCOPE")
				}
				d.expect(d.post("/v1/schedules/list", `{"topic":"t"}`), 403, "E_CAP_SCOPE")
			}
		}
	})
}
