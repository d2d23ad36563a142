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

func TestMalformedReceiptIsToldFromExpiredOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/send", hello), 200, "")
		got := d.post("/v1/recv", `{"topic":"t","visibility_ms":1000}`).fields["messages"].([]any)[0].(map[string]any)
		id, good := got["msg_id"].(string), got["receipt"].(string)
		for _, garbage := range []string{"garbage", good[:20], strings.Repeat("!", len(good))} {
			for path, body := range map[string]string{
				"/v1/ack/" + id: `{"topic":"t","receipt":%q}`, "/v1/nack/" + id: `{"topic":"t","receipt":%q}`,
				"/v1/extend/" + id: `{"topic":"t","receipt":%q,"visibility_ms":1000}`,
			} {
				a := d.post(path, fmt.Sprintf(body, garbage))
				d.expect(a, 404, "E_NOT_FOUND")
				if a.fields["kind"] != "receipt_expired" || a.fields["field"] != "receipt" || !strings.Contains(a.body, "is malformed") {
					t.Errorf("%s with %q: %s", path, garbage, a.body)
				}
			}
		}
		batch := d.post("/v1/ack", fmt.Sprintf(`{"topic":"t","receipts":["garbage",%q]}`, good))
		if !strings.Contains(batch.body, "is malformed") || strings.Count(batch.body, "E_NOT_FOUND") != 1 {
			t.Errorf("a batch with one malformed receipt: %s", batch.body)
		}
		d.expect(d.post("/v1/send", strings.Replace(hello, `"k"`, `"l"`, 1)), 200, "")
		got = d.post("/v1/recv", `{"topic":"t","visibility_ms":1000}`).fields["messages"].([]any)[0].(map[string]any)
		time.Sleep(2 * time.Second)
		late := d.post("/v1/ack/"+got["msg_id"].(string), fmt.Sprintf(`{"topic":"t","receipt":%q}`, got["receipt"]))
		d.expect(late, 404, "E_NOT_FOUND")
		if strings.Contains(late.body, "malformed") {
			t.Errorf("an expired receipt: %s", late.body)
		}
	})
}
