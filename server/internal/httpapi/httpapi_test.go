package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
)

// env is a daemon and a client with a token.
type env struct {
	*service
	t     testing.TB
	token capability.Token
}

// open returns a client of a daemon over memory, for a test in virtual time.
func open(t *testing.T, limits broker.Limits, config driver.Config) *env {
	backend := membox.New(&membox.Options{Defaults: config})
	s := newService(t, backend, limits)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
		_ = backend.Close()
		<-time.After(time.Second) // net/http lingers after an unread body
	})
	return &env{s, t, s.mint(t, "")}
}

// answer is a response.
type answer struct {
	status int
	header http.Header
	body   string
	fields map[string]any
}

func (a answer) code() any { return a.fields["code"] }

// post sends a body.
func (d *env) post(path, body string, headers ...string) answer {
	d.t.Helper()
	return d.do(d.t.Context(), d.token.Reveal(), path, strings.NewReader(body), headers...)
}

func (d *env) do(ctx context.Context, token, path string, body io.Reader, headers ...string) answer {
	d.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://mailbox"+path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	a := answer{status: response.StatusCode, header: response.Header, body: string(text)}
	_ = json.Unmarshal(text, &a.fields)
	return a
}

func (d *env) expect(a answer, status int, code string) {
	d.t.Helper()
	if a.status != status || (code != "" && a.code() != code) {
		d.t.Errorf("got %d %s, want %d %s", a.status, a.body, status, code)
	}
	if code != "" {
		if a.fields["corr_id"] != a.header.Get("X-Corr-Id") || a.fields["corr_id"] == "" || a.fields["message"] == "" {
			d.t.Errorf("an error without message or correlation id: %s", a.body)
		}
		if retries := status == 429 || status == 503; (a.header.Get("Retry-After") != "") != retries {
			d.t.Errorf("%d with Retry-After %q", status, a.header.Get("Retry-After"))
		}
	}
}

const hello = `{"topic":"t","idem_key":"k","payload_b64":"SGk=","attrs":{"a":"b"}}`

func TestMessageIsSentReceivedAndAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		sent := d.post("/v1/send", hello, "X-Corr-Id", "my-id")
		d.expect(sent, 200, "")
		if sent.header.Get("X-Corr-Id") != "my-id" {
			t.Errorf("X-Corr-Id is %q", sent.header.Get("X-Corr-Id"))
		}
		got := d.post("/v1/recv", `{"topic":"t","visibility_ms":1000}`)
		var messages struct{ Messages []json.RawMessage }
		if err := json.Unmarshal([]byte(got.body), &messages); err != nil || len(messages.Messages) != 1 {
			t.Fatalf("got %s", got.body)
		}
		// A consumer can verify the message with package envelope alone.
		var delivery envelope.Delivery
		if err := json.Unmarshal(messages.Messages[0], &delivery); err != nil {
			t.Fatal(err)
		}
		if err := delivery.Verify(); err != nil || string(delivery.Body) != "Hi" || delivery.CorrelationID != "my-id" || delivery.Attributes["a"] != "b" {
			t.Errorf("got %+v, %v", delivery, err)
		}
		for range 2 {
			d.expect(d.post("/v1/ack/"+delivery.ID, ""), 200, "")
		}
		d.expect(d.post("/v1/nack/"+delivery.ID, ""), 404, "E_NOT_FOUND")
		d.expect(d.post("/v1/extend/"+delivery.ID, `{"visibility_ms":1000}`), 404, "E_NOT_FOUND")
	})
}

// TestRepeatedSendsAreOneMessage is gate G-2, and with the window gate G-8.
func TestRepeatedSendsAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		first := d.post("/v1/send", hello)
		if first.fields["duplicate"] != false {
			t.Errorf("got %s", first.body)
		}
		for i := range 10 {
			again := d.post("/v1/send", hello)
			if again.status != 200 || again.fields["duplicate"] != true || again.fields["msg_id"] != first.fields["msg_id"] {
				t.Errorf("repeat %d: %s", i, again.body)
			}
		}
		again := d.post("/v1/send", hello, "X-Idempotency-Mode", "409-conflict")
		if again.status != 409 || again.fields["duplicate"] != true || again.fields["msg_id"] != first.fields["msg_id"] {
			t.Errorf("in the other mode: %d %s", again.status, again.body)
		}
		d.expect(d.post("/v1/send", strings.ReplaceAll(hello, "SGk=", "SGo=")), 409, "E_DUPLICATE")
		time.Sleep(driver.DefaultDedupWindow - time.Second)
		if again := d.post("/v1/send", hello); again.fields["duplicate"] != true {
			t.Errorf("just before the end of the window: %s", again.body)
		}
		time.Sleep(time.Second)
		if again := d.post("/v1/send", hello); again.fields["duplicate"] != false {
			t.Errorf("after the window: %s", again.body)
		}
		if stats := d.post("/v1/stats", `{"topic":"t"}`); stats.fields["ready"] != 2.0 {
			t.Errorf("want the two messages: %s", stats.body)
		}
	})
}

func (d *env) get(path string) string {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://mailbox"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token.Reveal())
	response, err := d.client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// TestUnackedMessageComesBack is gate G-3.
func TestUnackedMessageComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/send", hello), 200, "")
		first := d.post("/v1/recv", `{"topic":"t","visibility_ms":1000}`)
		if nothing := d.post("/v1/recv", `{"topic":"t","visibility_ms":1000}`); nothing.body != "{\"messages\":[]}\n" {
			t.Errorf("while it is in flight: %s", nothing.body)
		}
		began := time.Now()
		second := d.post("/v1/recv", `{"topic":"t","visibility_ms":1000,"wait_ms":60000}`)
		if waited := time.Since(began); waited < time.Second || waited > time.Second+50*time.Millisecond {
			t.Errorf("it came back after %v, want 1s", waited)
		}
		if !strings.Contains(second.body, `"attempt":2`) {
			t.Errorf("second delivery: %s", second.body)
		}
		receipt := func(a answer) string {
			return a.fields["messages"].([]any)[0].(map[string]any)["receipt"].(string)
		}
		id := second.fields["messages"].([]any)[0].(map[string]any)["msg_id"].(string)
		d.expect(d.post("/v1/ack/"+id, fmt.Sprintf(`{"topic":"t","receipt":%q}`, receipt(first))), 404, "E_NOT_FOUND")
		d.expect(d.post("/v1/ack/"+id, fmt.Sprintf(`{"topic":"t","receipt":%q}`, receipt(second))), 200, "")
		time.Sleep(time.Hour)
		if nothing := d.post("/v1/recv", `{"topic":"t","visibility_ms":1000}`); nothing.body != "{\"messages\":[]}\n" {
			t.Errorf("after the ack: %s", nothing.body)
		}
	})
}

func TestStreamWritesMessagesAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.post("/v1/send/batch", `{"topic":"t","messages":[]}`)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://mailbox/v1/recv/stream",
			strings.NewReader(`{"topic":"t","visibility_ms":60000,"wait_ms":10000,"max_messages":3}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+d.token.Reveal())
		go func() {
			for i := range 5 {
				time.Sleep(time.Second)
				d.post("/v1/send", strings.ReplaceAll(hello, `"k"`, fmt.Sprintf(`"k%d"`, i)))
			}
		}()
		response, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("Content-Type is %q", response.Header.Get("Content-Type"))
		}
		began, lines := time.Now(), 0
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); lines++ {
			if err := json.Unmarshal(scanner.Bytes(), new(envelope.Delivery)); err != nil {
				t.Error(err)
			}
			if due := time.Duration(lines) * time.Second; time.Since(began)-due > 50*time.Millisecond {
				t.Errorf("line %d came after %v", lines, time.Since(began))
			}
		}
		if lines != 3 {
			t.Errorf("got %d lines, want 3", lines)
		}
		time.Sleep(10 * time.Second)
	})
}

func TestDisconnectedClientStrandsNoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://mailbox/v1/recv", strings.NewReader(`{"topic":"t","visibility_ms":3600000,"wait_ms":60000}`))
			r.Header.Set("Authorization", "Bearer "+d.token.Reveal())
			if response, err := d.client.Do(r); err == nil {
				_ = response.Body.Close()
			}
		}()
		synctest.Wait()
		cancel()
		<-gone
		synctest.Wait()
		d.expect(d.post("/v1/send", hello), 200, "")
		if got := d.post("/v1/recv", `{"topic":"t"}`); !strings.Contains(got.body, `"msg_id"`) {
			t.Errorf("got %s", got.body)
		}
	})
}

// TestMetricsNameEveryLimit checks for every bound of a queue, and of the daemon,
// how much of it is used and what it is.
func TestMetricsNameEveryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{MaxInFlight: 30, MaxQueues: 400}, driver.Config{
			MaxMessages: 10, MaxBytes: 1000, MaxInFlight: 7, MaxDeliveries: 1, MaxDead: 20, DedupMax: 500,
			RetainReady: driver.Retention{Age: time.Hour, Count: 8}, RetainDead: driver.Retention{Age: 2 * time.Hour, Count: 9},
		})
		d.post("/v1/send", hello)
		d.post("/v1/send", strings.ReplaceAll(hello, `"k"`, `"k2"`))
		d.post("/v1/recv", `{"topic":"t","max_messages":1,"visibility_ms":1000}`)
		time.Sleep(2 * time.Second) // it is dead-lettered
		figures := d.get("/metrics")
		for _, want := range []string{
			`mailbox_queue_depth{queue="t",shard="0",state="ready"} 1`, `mailbox_queue_depth{queue="t",shard="0",state="delayed"} 0`,
			`mailbox_inflight{queue="t",shard="0"} 0`, `mailbox_inflight_limit{queue="t"} 7`, `mailbox_saturation{queue="t",shard="0"} 0.1`,
			`mailbox_dlq_depth{queue="t"} 1`, `mailbox_dlq_limit{queue="t"} 20`, `mailbox_dlq_total{queue="t",reason="max_attempts"} 1`,
			"mailbox_enqueue_latency_seconds_count 2", "mailbox_dequeue_latency_seconds_count", "mailbox_ack_commit_latency_seconds_count",
			`mailbox_enqueued_total{queue="t"} 2`, `mailbox_queue_limit{queue="t",shard="0"} 10`,
			`mailbox_queue_bytes{queue="t",shard="0"} 2`, `mailbox_queue_bytes_limit{queue="t",shard="0"} 1000`,
			`mailbox_dedup_keys{queue="t"} 2`, `mailbox_dedup_keys_limit{queue="t"} 500`,
			`mailbox_oldest_ready_seconds{queue="t"} 2`, `mailbox_retain_ready_seconds{queue="t"} 3600`, `mailbox_retain_ready_messages{queue="t"} 8`,
			`mailbox_oldest_dead_seconds{queue="t"} 1`, `mailbox_retain_dead_seconds{queue="t"} 7200`, `mailbox_retain_dead_messages{queue="t"} 9`,
			"mailbox_inflight_messages 0", "mailbox_inflight_messages_limit 30", "mailbox_queues_open 1", "mailbox_queues_open_limit 400",
			"mailbox_token_cache_entries ", "mailbox_token_cache_entries_limit ",
		} {
			if !strings.Contains(figures, want) {
				t.Errorf("the metrics have no %s", want)
			}
		}
		for i := range 300 {
			d.post("/v1/send", fmt.Sprintf(`{"topic":"many-%d","idem_key":"k","payload_b64":""}`, i))
		}
		if n := strings.Count(d.get("/metrics"), "mailbox_enqueued_total{"); n > 220 {
			t.Errorf("%d series for queues: their number is not bounded", n)
		}
	})
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte(hello))
	f.Add([]byte(`{"topic":"t","messages":[{"payload_b64":"","delay_ms":1.5}]}`))
	f.Add([]byte(`{"topic":"t","config":{"shards":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for path := range httpapi.RequestTypes {
			target := httpapi.NewRequest(path)
			if httpapi.DecodeStrictly(data, target) == nil && !json.Valid(data) {
				t.Errorf("%s reads a body that is not JSON: %q", path, data)
			}
		}
	})
}
