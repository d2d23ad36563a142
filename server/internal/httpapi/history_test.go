package httpapi_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestHistoryOfLimitedLengthIsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.broker.RunHistory(ctx)
		}()
		for _, message := range []string{`{"topic":"t","idem_key":"a","payload_b64":""}`, `{"topic":"t","idem_key":"b","payload_b64":""}`} {
			d.expect(d.post("/v1/send", message), 200, "")
			time.Sleep(broker.HistoryEvery + time.Second)
		}
		for body, want := range map[string][]float64{
			`{"topic":"t"}`: {1, 2}, `{"topic":"t","limit":1}`: {2}, `{"topic":"t","limit":9}`: {1, 2}, `{"topic":"t","limit":0}`: {1, 2},
		} {
			answer := d.post("/v1/history", body)
			points, _ := answer.fields["points"].([]any)
			if len(points) != len(want) {
				t.Errorf("%s: got %s", body, answer.body)
				continue
			}
			for i, p := range points {
				if ready := p.(map[string]any)["ready"]; ready != want[i] {
					t.Errorf("%s: point %d has %v ready messages, want %v", body, i, ready, want[i])
				}
			}
		}
		d.expect(d.post("/v1/history", `{"topic":"t","limit":-1}`), 400, "E_SCHEMA")
		d.expect(d.post("/v1/history", `{}`), 400, "E_SCHEMA")
		cancel()
		<-ended
	})
}
