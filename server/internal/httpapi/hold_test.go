package httpapi_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// VIS-5: an extension that is cut answers with the real deadline.
func TestCutExtensionAnswersGrantedVisibility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{MaxHold: time.Minute})
		d.expect(d.post("/v1/send", hello), 200, "")
		got := d.post("/v1/recv", `{"topic":"t","visibility_ms":1000}`)
		message := got.fields["messages"].([]any)[0].(map[string]any)
		id, receipt := message["msg_id"], message["receipt"]
		time.Sleep(500 * time.Millisecond)
		for body, want := range map[string]string{
			`{"visibility_ms":2000}`:    `{"ok":true,"visibility_ms":2000}`,
			`{"visibility_ms":3600000}`: `{"ok":true,"visibility_ms":59500}`,
		} {
			if answer := d.post(fmt.Sprintf("/v1/extend/%s", id), body); answer.body != want+"\n" {
				t.Errorf("extend %s: got %s, want %s", body, answer.body, want)
			}
		}
		answer := d.post("/v1/extend", fmt.Sprintf(`{"topic":"t","extensions":[{"receipt":%q,"visibility_ms":3600000},{"receipt":"none","visibility_ms":1}]}`, receipt))
		results := answer.fields["results"].([]any)
		if got := results[0].(map[string]any)["visibility_ms"]; fmt.Sprint(got) != "59500" {
			t.Errorf("extend of a batch: got %s", answer.body)
		}
		if _, has := results[1].(map[string]any)["visibility_ms"]; has {
			t.Errorf("extend of a receipt that is not known: got %s", answer.body)
		}
	})
}

func TestMultipleAsMaxHoldMeansTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{MaxHold: time.Minute})
		for body, want := range map[string]string{
			`{}`: "60000", `{"max_hold":0}`: "60000", `{"max_hold":10}`: "43200000",
			`{"max_hold_ms":5000}`: "5000", `{"max_hold_ms":0}`: "0", `{"max_hold":10,"max_hold_ms":5000}`: "5000",
		} {
			d.expect(d.post("/v1/queues/configure", `{"topic":"t","config":`+body+`}`), 200, "")
			got := d.post("/v1/queues/get", `{"topic":"t"}`).fields["config"].(map[string]any)
			if _, has := got["max_hold"]; has || fmt.Sprintf("%.0f", got["max_hold_ms"]) != want {
				t.Errorf("config %s: got max_hold_ms %v, want %s", body, got["max_hold_ms"], want)
			}
			d.expect(d.post("/v1/queues/delete", `{"topic":"t"}`), 200, "")
		}
	})
}
