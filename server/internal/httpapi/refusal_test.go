package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
)

func TestRequestsWithoutTokenAreRefusedUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		other := keyring.New(keyring.NewKey())
		foreign, err := other.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{"", "nonsense", foreign.Reveal()} {
			for _, route := range httpapi.Routes() {
				if route.Method != http.MethodPost {
					continue
				}
				// The body never ends: who waits for it hangs.
				endless, writer := io.Pipe()
				a := d.do(t.Context(), token, strings.ReplaceAll(route.Path, "{msg_id}", "x"), endless)
				d.expect(a, 401, "E_CAP_AUTH")
				_ = writer.Close()
			}
		}
	})
}

func TestRefusalsOfCapabilitiesSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		narrow, err := d.token.Narrow(capability.Queues(capability.QueuesUnder("user:4:")), capability.Operations(capability.OpSend))
		if err != nil {
			t.Fatal(err)
		}
		d.token = narrow
		d.expect(d.post("/v1/send", `{"topic":"user:4:in","idem_key":"k","payload_b64":""}`), 200, "")
		a := d.post("/v1/send", `{"topic":"user:42","idem_key":"k","payload_b64":""}`)
		d.expect(a, 403, "E_CAP_SCOPE")
		if a.fields["reason"] != "topic" {
			t.Errorf("the reason is %v", a.fields["reason"])
		}
		d.expect(d.post("/v1/recv", `{"topic":"user:4:in"}`), 403, "E_CAP_SCOPE")
		d.expect(d.post("/v1/edit", `{"topic":"user:4:in","msg_id":"m","remove":true}`), 403, "E_CAP_SCOPE")
		time.Sleep(time.Until(time.Now().AddDate(201, 0, 0)))
		a = d.post("/v1/send", `{"topic":"user:4:in","idem_key":"k2","payload_b64":""}`)
		d.expect(a, 401, "E_CAP_AUTH")
		if a.fields["reason"] != "expired" {
			t.Errorf("the reason is %v", a.fields["reason"])
		}
	})
}

// TestDiscardWithoutIDsIsRefused: it removed nothing, and looked as if it had; redrive
// without ids takes all, which clients rely on.
func TestDiscardWithoutIDsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{MinVisibility: 250 * time.Millisecond}, driver.Config{})
		d.expect(d.post("/v1/send", hello), 200, "")
		a := d.post("/v1/recv", `{"topic":"t","visibility_ms":60000}`)
		d.expect(a, 200, "")
		d.expect(d.post("/v1/bury/"+a.fields["messages"].([]any)[0].(map[string]any)["msg_id"].(string), `{"reason":"fatal"}`), 200, "")
		a = d.post("/v1/dlq/discard", `{"topic":"t"}`)
		if d.expect(a, 400, "E_SCHEMA"); a.fields["field"] != "msg_ids" {
			t.Errorf("refused for %v", a.fields["field"])
		}
		for _, path := range []string{"/v1/dlq/discard", "/v1/dlq/reprocess"} {
			if a := d.post(path, `{"topic":"t","msg_ids":[]}`); a.status != 200 || a.fields["removed"] == 1.0 || a.fields["moved"] == 1.0 {
				t.Errorf("%s of no ids: %d %s", path, a.status, a.body)
			}
		}
		if a := d.post("/v1/dlq/reprocess", `{"topic":"t"}`); a.fields["moved"] != 1.0 {
			t.Errorf("redriving all: %d %s", a.status, a.body)
		}
	})
}

func TestVisibilityErrorNamesBothLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{MinVisibility: 250 * time.Millisecond}, driver.Config{})
		d.expect(d.post("/v1/send", hello), 200, "")
		for _, visibility := range []string{"-1", "0", "249", "43200001"} {
			a := d.post("/v1/recv", `{"topic":"t","visibility_ms":`+visibility+`}`)
			if detail, _ := a.fields["detail"].(string); a.status != 400 || !strings.HasSuffix(detail, "is out of range; want 250ms to 12h0m0s") {
				t.Errorf("%s ms: %d %s", visibility, a.status, a.body)
			}
		}
	})
}

// TestInputIsReadStrictly is a part of gate G-4.
func TestInputIsReadStrictly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{MinVisibility: 250 * time.Millisecond}, driver.Config{})
		for _, bad := range []string{
			``, `null`, `[]`, `"x"`, `{`, hello + ` ` + `{}`, hello + `x`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","unknown":1}`,
			`{"topic":"t","topic":"t","idem_key":"k","payload_b64":"SGk="}`,
			`{"Topic":"t","idem_key":"k","payload_b64":"SGk="}`,
			`{"topic":1,"idem_key":"k","payload_b64":"SGk="}`,
			`{"topic":null,"idem_key":"k","payload_b64":"SGk="}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk"}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SG k="}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGl="}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","attrs":{"a":1}}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","attrs":{"a":"1","a":"2"}}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","delay_ms":"1"}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","delay_ms":1e3}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","delay_ms":0.0000001}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","delay_ms":31622400001}`,
			`{"topic":"t","idem_key":"\ud800","payload_b64":"SGk="}`,
			"{\"topic\":\"t\",\"idem_key\":\"\xff\",\"payload_b64\":\"SGk=\"}",
			`{"idem_key":"k","payload_b64":"SGk="}`,
			`{"topic":"t","payload_b64":"SGk="}`,
			`{"topic":"t","idem_key":"k"}`,
			`{"topic":"a{b}","idem_key":"k","payload_b64":"SGk="}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","attrs":{"mailbox.env":"x"}}`,
			`{"topic":"t","idem_key":"k","payload_b64":"SGk=","sig":"ed25519:00"}`,
		} {
			d.expect(d.post("/v1/send", bad), 400, "E_SCHEMA")
		}
		for _, bad := range []string{
			`{"topic":"t","visibility_ms":249}`, `{"topic":"t","visibility_ms":249.999999}`, `{"topic":"t","visibility_ms":43200001}`,
			`{"topic":"t","visibility_ms":-1}`, `{"topic":"t","max_messages":0}`, `{"topic":"t","max_bytes":-1}`, `{"topic":"t","wait_ms":-1}`,
			`{"topic":"t","visibility_ms":99999999999999999999999}`,
		} {
			d.expect(d.post("/v1/recv", bad), 400, "E_SCHEMA")
		}
		d.expect(d.post("/v1/recv", `{"topic":"t","visibility_ms":250}`), 200, "")
		d.expect(d.post("/v1/send", hello, "X-Idempotency-Mode", "maybe"), 400, "E_SCHEMA")
		d.expect(d.post("/v1/nowhere", "{}"), 404, "E_NOT_FOUND")
		if stats := d.post("/v1/stats", `{"topic":"t"}`); stats.fields["ready"] != 0.0 {
			t.Errorf("something was sent all the same: %s", stats.body)
		}
	})
}

// TestOversizedRequestsAreRefusedBeforeTheyAreRead is a part of gate G-4.
func TestOversizedRequestsAreRefusedBeforeTheyAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		// It says how long it is, and nothing of it ever comes.
		pipe, writer := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://mailbox/v1/send", pipe)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = httpapi.MaxRequestBytes + 1
		r.Header.Set("Authorization", "Bearer "+d.token.Reveal())
		response, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		_ = writer.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %s", response.Status)
		}
		// It does not say how long it is.
		d.expect(d.do(t.Context(), d.token.Reveal(), "/v1/send", io.MultiReader(strings.NewReader(`{"topic":"`), bytes.NewReader(make([]byte, httpapi.MaxRequestBytes)))), 413, "E_FRAME_TOO_LARGE")
		// A payload that fits into a request and is too large for a message.
		large := fmt.Sprintf(`{"topic":"t","idem_key":"k","payload_b64":"%s"}`, strings.Repeat("A", (broker.DefaultMaxPayloadBytes+3)/3*4))
		d.expect(d.post("/v1/send", large), 413, "E_FRAME_TOO_LARGE")
	})
}

func TestRequestThatDoesNotArriveTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		slow, writer := io.Pipe()
		go func() { _, _ = writer.Write([]byte(`{"topic":`)) }()
		began := time.Now()
		a := d.do(t.Context(), d.token.Reveal(), "/v1/send", slow)
		d.expect(a, 503, "E_UNAVAILABLE")
		if took := time.Since(began); took > 2*httpapi.DefaultReadTimeout {
			t.Errorf("it took %v", took)
		}
		_ = writer.Close()
	})
}

// TestSaturationIs429AndDraining503 is a part of gate G-4.
func TestSaturationIs429AndDraining503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{MaxInFlight: 1}, driver.Config{MaxMessages: 2})
		for i := range 2 {
			d.expect(d.post("/v1/send", strings.ReplaceAll(hello, `"k"`, fmt.Sprintf(`"k%d"`, i))), 200, "")
		}
		d.expect(d.post("/v1/send", hello), 429, "E_SATURATED")
		d.expect(d.post("/v1/recv", `{"topic":"t"}`), 200, "")
		d.expect(d.post("/v1/recv", `{"topic":"t"}`), 429, "E_SATURATED")
		limited, err := d.token.Narrow(capability.MessagesPerSecond(1))
		if err != nil {
			t.Fatal(err)
		}
		d.token = limited
		d.expect(d.post("/v1/send", strings.ReplaceAll(hello, `"t"`, `"other"`)), 200, "")
		a := d.post("/v1/send", strings.ReplaceAll(hello, `"t"`, `"other"`))
		d.expect(a, 429, "E_SATURATED")
		if a.fields["reason"] != "quota" {
			t.Errorf("the reason is %v", a.fields["reason"])
		}
		d.broker.SetState(broker.StateReadOnly)
		time.Sleep(time.Minute)
		d.expect(d.post("/v1/send", strings.ReplaceAll(hello, `"t"`, `"other"`)), 503, "E_UNAVAILABLE")
		time.Sleep(time.Minute)
		d.expect(d.post("/v1/recv", `{"topic":"other"}`), 200, "")
		figures := d.get("/metrics")
		for _, want := range []string{`mailbox_rejected_total{reason="saturated"}`, `mailbox_rejected_total{reason="quota"}`, `mailbox_rejected_total{reason="degraded"}`} {
			if !strings.Contains(figures, want) {
				t.Errorf("the metrics have no %s", want)
			}
		}
	})
}

func TestReceivingFromAbsentQueueIs404(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for _, path := range []string{"/v1/recv", "/v1/recv/stream", "/v1/stats", "/v1/purge"} {
			d.expect(d.post(path, `{"topic":"typo"}`), 404, "E_NOT_FOUND")
		}
		if listed := d.post("/v1/topics", `{}`); strings.Contains(listed.body, "typo") {
			t.Errorf("it was created: %s", listed.body)
		}
	})
}

// TestTraitsFollowFromLargestRequest: what the traits allow fits in a request, whatever the
// daemon allows.
func TestTraitsFollowFromLargestRequest(t *testing.T) { // SVC-5
	for limit, want := range map[int]int{0: 704 << 10, 1 << 20: 785_664} {
		synctest.Test(t, func(t *testing.T) {
			d := open(t, broker.Limits{MaxPayloadBytes: limit}, driver.Config{})
			queue, key := strings.Repeat("q", driver.MaxNameBytes), strings.Repeat("k", driver.MaxDedupKeyBytes)
			if got := d.post("/v1/traits", fmt.Sprintf(`{"topic":%q}`, queue)).fields["max_body_bytes"]; got != float64(want) {
				t.Errorf("max_body_bytes is %v, want %d", got, want)
			}
			send := func(size int) answer {
				return d.post("/v1/send", fmt.Sprintf(`{"topic":%q,"idem_key":%q,"payload_b64":"%s"}`, queue, key, base64.StdEncoding.EncodeToString(make([]byte, size))))
			}
			d.expect(send(want), 200, "")
			tooLarge := send(want + 1<<10)
			d.expect(tooLarge, 413, "E_FRAME_TOO_LARGE")
			if limit > want && !strings.Contains(tooLarge.body, "a request has at most 1048576 bytes") {
				t.Errorf("got %s", tooLarge.body)
			}
		})
	}
}
