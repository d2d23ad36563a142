package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// page gets a page.
func (d *env) page(path string) answer {
	d.t.Helper()
	return d.getAs(d.t.Context(), d.token.Reveal(), path)
}

func (d *env) getAs(ctx context.Context, token, path string) answer {
	d.t.Helper()
	return d.request(ctx, http.MethodGet, token, path)
}

// request sends a request without a body.
func (d *env) request(ctx context.Context, method, token, path string) answer {
	d.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://mailbox"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
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

func TestRawBodiesAreSentUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json", ""} {
			d.expect(d.post("/v1/queues/jobs/messages", "a=b&c \xff", "Content-Type", contentType), 200, "")
		}
		first := d.post("/v1/queues/orders%2Feu/messages?idem_key=k&correlation_id=c", "")
		second := d.post("/v1/queues/orders%2Feu/messages?idem_key=k&correlation_id=c", "")
		if first.fields["msg_id"] != second.fields["msg_id"] || second.fields["duplicate"] != true {
			t.Errorf("a key does not make a repeat harmless: %s %s", first.body, second.body)
		}
		d.expect(d.post("/v1/queues/orders%2Feu/messages?delay_ms=60000", "later"), 200, "")
		got := d.post("/v1/recv", `{"topic":"jobs","max_messages":9}`)
		if n := strings.Count(got.body, `"payload_b64":"YT1iJmMg/w=="`); n != 4 {
			t.Errorf("%d of 4 bodies came as they were sent: %s", n, got.body)
		}
		if got := d.page("/v1/queues/orders%2Feu/stats"); !strings.Contains(got.body, `{"ready":1,"delayed":1,"in_flight":0,"dead":0,"paused":false}`) {
			t.Errorf("got %s", got.body)
		}
	})
}

func TestPagesLeaseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for range 25 {
			d.expect(d.post("/v1/queues/jobs/messages", "x"), 200, "")
		}
		d.expect(d.post("/v1/recv", `{"topic":"jobs","max_messages":1}`), 200, "")
		for path, want := range map[string]int{
			"/v1/queues/jobs/messages":                        20,
			"/v1/queues/jobs/messages?limit=0":                25,
			"/v1/queues/jobs/messages?limit=3&states=ready":   3,
			"/v1/queues/jobs/messages?states=in_flight":       1,
			"/v1/queues/jobs/messages?states=dead,delayed":    0,
			"/v1/queues/jobs/messages?older_than_ms=60000":    0,
			"/v1/queues/jobs/messages?msg_id=nothing&limit=1": 0,
		} {
			got := d.page(path)
			d.expect(got, 200, "")
			if n := strings.Count(got.body, "\n"); n != want {
				t.Errorf("%s has %d lines, want %d", path, n, want)
			}
		}
		if got := d.page("/v1/queues/jobs/stats"); !strings.Contains(got.body, `{"ready":24,"delayed":0,"in_flight":1,"dead":0,"paused":false}`) {
			t.Errorf("after looking: %s", got.body)
		}
		for _, path := range []string{"/v1/queues/none/messages", "/v1/queues/none/stats"} {
			d.expect(d.page(path), 404, "E_NOT_FOUND")
			d.expect(d.getAs(t.Context(), "", path), 401, "E_CAP_AUTH")
		}
		if got := d.post("/v1/queues/list", ""); strings.Contains(got.body, "none") {
			t.Errorf("looking made a queue: %s", got.body)
		}
	})
}

func TestIndexListsEveryPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		got := d.getAs(t.Context(), "", "/")
		d.expect(got, 200, "")
		endpoints, _ := got.fields["endpoints"].([]any)
		if got.fields["name"] != "mailboxd" || !slices.Contains(endpoints, any("POST /v1/send")) || !slices.Contains(endpoints, any("GET /v1/queues/{topic}/stats")) {
			t.Errorf("got %s", got.body)
		}
	})
}

func TestErrorsNameWhatWasMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/queues/jobs/messages", "x"), 200, "")
		for _, test := range []struct{ path, body, field, want string }{
			{"/v1/send", `{"topik":"jobs"}`, "body", `unknown field "topik"; did you mean "topic"?`},
			{"/v1/stats", `{"topic":"jobs","zzzzzzzz":1}`, "body", `unknown field "zzzzzzzz"; want topic`},
			{"/v1/send/batch", `{"topic":"jobs","messages":[{"payload":"eA=="}]}`, "messages", `unknown field "payload"; did you mean "payload_b64"?`},
			{"/v1/stats", `{"topic":"jobs","topic":"jobs"}`, "body", `field "topic" is given twice`},
			{"/v1/stats", `{"topic":7}`, "topic", "want a string"},
			{"/v1/stats", `[]`, "body", "want an object"},
			{"/v1/stats", `{`, "body", "is not valid JSON"},
			{"/v1/stats", `{'topic':'jobs'}`, "body", "is not valid JSON (byte 2 of the request)"},
			{"/v1/send", "hello", "body", "want a JSON object; POST /v1/queues/{topic}/messages sends a body as it is"},
			{"/v1/send", ` {"topic":"jobs","payload_b64":"eA=="}`, "idem_key", "/v1/send/batch and /v1/queues/{topic}/messages do without"},
			{"/v1/send", `{"queue":"jobs"}`, "body", `unknown field "queue"; did you mean "topic"?`},
			{"/v1/send", `{"topic":"jobs","body":"x"}`, "body", `unknown field "body"; did you mean "payload_b64"?`},
			{"/v1/caps/mint", `{"caveats":["op=send"]}`, "caveat", `"op=send" is unknown; want a form like mbx:op=send`},
			{"/v1/caps/mint", `{"caveats":["mbx:exp=1999-01-01T00:00:00Z"]}`, "caveats", "the token would have expired at 1999-01-01T00:00:00Z; want a time in the future"},
			{"/v1/recv", `{"topic":"jobs","visibility_ms":-1}`, "visibility_ms", ""},
			{"/v1/recv", `{"topic":"jobs","max_messages":-1}`, "max_messages", ""},
			{"/v1/send", `{"topic":"jobs","idem_key":"k","payload_b64":"eA==","delay_ms":-1}`, "delay_ms", ""},
			{"/v1/send", `{"topic":"jobs","idem_key":"k","payload_b64":"eA==","attrs":{"":"x"}}`, "attrs", "a key is empty"},
			{"/v1/send", `{"topic":"a{b","idem_key":"k","payload_b64":"eA=="}`, "topic", "contains a brace"},
			{"/v1/peek", `{"topic":"jobs","states":["gone"]}`, "states", `"gone" is not a state; want ready, delayed, in flight or dead`},
			{"/v1/peek", `{"topic":"jobs","reason":"boredom"}`, "reason", `"boredom" is not a reason; want max_attempts`},
			{"/v1/queues/configure", `{"topic":"jobs","config":{"max_atempts":3}}`, "config", `did you mean "max_attempts"?`},
			{"/v1/queues/configure", `{"topic":"jobs","config":{"max_attempts":-3}}`, "max_attempts", ""},
			{"/v1/queues/jobs/messages?delay=3", "x", "query", `unknown field "delay"; did you mean "delay_ms"?`},
			{"/v1/queues/jobs/messages?delay_ms=soon", "x", "delay_ms", "want a number of milliseconds"},
			{"/v1/queues/jobs/messages?deliver_at=tomorrow", "x", "deliver_at", "is not a time; want one like 2026-01-02T03:04:05Z"},
			{"/v1/send", `{"topic":"jobs","idem_key":"k","payload_b64":"eA==","deliver_at":"soon"}`, "deliver_at", "is not a time; want one like"},
			{"/v1/send", `{"topic":"jobs","idem_key":"k","payload_b64":"eA==","deliver_at":"2999-01-02T03:04:05Z"}`, "deliver_at", "at most 8784h0m0s are allowed"},
			{"/v1/queues/jobs/messages?ttl_ms=31622400001", "x", "ttl_ms", "8784h0m0.001s is outside 0…8784h0m0s"},
			{"/v1/send", `{"topic":"jobs","idem_key":"k","payload_b64":"eA==","ttl_ms":-1}`, "ttl_ms", "-1ms is outside 0…8784h0m0s"},
			{"/v1/queues/jobs/messages?deliver_at=2000-01-02T03:04:05Z&delay_ms=5", "x", "deliver_at", "a delay of 5ms is given too; give one of the two"},
			{"/v1/queues/jobs/messages?group=a&group=b", "x", "group", "is given twice"},
		} {
			got := d.post(test.path, test.body)
			d.expect(got, 400, "E_SCHEMA")
			if detail, _ := got.fields["detail"].(string); got.fields["field"] != test.field || !strings.Contains(detail, test.want) {
				t.Errorf("%s %s: field %v, %v; want %s, %s", test.path, test.body, got.fields["field"], got.fields["detail"], test.field, test.want)
			}
		}
		for path, want := range map[string]string{
			"/v1/sned": `there is no path \"/v1/sned\"; did you mean /v1/send?`, "/nothing": "GET / lists all paths", "/healthz": `/healthz\" takes GET, not \"POST\"`, "/v1/queues/jobs/stats": `stats\" takes GET, not`,
		} {
			got := d.post(path, "{}")
			d.expect(got, 404, "E_NOT_FOUND")
			if !strings.Contains(got.body, want) {
				t.Errorf("%s: got %s, want %s", path, got.body, want)
			}
		}
	})
}

func TestStatesInQueryAreSpelledWithUnderscore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/queues/jobs/messages", "x"), 200, "")
		got := d.getAs(t.Context(), d.token.Reveal(), "/v1/queues/jobs/messages?states=dead,redy")
		d.expect(got, 400, "E_SCHEMA")
		if want := `"redy" is not a state; want ready, delayed, in_flight or dead`; got.fields["field"] != "states" || got.fields["detail"] != want {
			t.Errorf("got %s, want %s", got.body, want)
		}
		for _, states := range []string{"in_flight", "in%20flight,ready"} {
			d.expect(d.getAs(t.Context(), d.token.Reveal(), "/v1/queues/jobs/messages?states="+states), 200, "")
		}
	})
}

func TestReplaceInQueryIsTrueOrFalse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/queues/jobs/messages?unique_key=page-7&replace=false", "first"), 200, "")
		if got := d.post("/v1/queues/jobs/messages?unique_key=page-7&replace=true", "second"); got.fields["replaced"] != true {
			t.Errorf("got %s, want replaced", got.body)
		}
		d.expect(d.post("/v1/queues/jobs/messages?unique_key=page-7&replace=1", "third"), 400, "E_SCHEMA")
	})
}

func TestOtherMethodsOnQueuesNameTheRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for request, want := range map[string]string{
			"DELETE /v1/queues/jobs": "POST /v1/queues/delete deletes a queue",
			"DELETE /v1/queues":      "POST /v1/queues/delete deletes a queue",
			"PUT /v1/queues/jobs":    "POST /v1/queues/configure creates or changes a queue",
		} {
			method, path, _ := strings.Cut(request, " ")
			got := d.request(t.Context(), method, d.token.Reveal(), path)
			d.expect(got, 404, "E_NOT_FOUND")
			if detail, _ := got.fields["detail"].(string); !strings.Contains(detail, want) {
				t.Errorf("%s: got %s, want %s", request, got.body, want)
			}
		}
	})
}

func TestRefusalNamesOperationAndQueueOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/queues/jobs/messages", "x"), 200, "")
		sender, err := d.token.Narrow(capability.Operations(capability.OpSend))
		if err != nil {
			t.Fatal(err)
		}
		got := d.do(t.Context(), sender.Reveal(), "/v1/recv", strings.NewReader(`{"topic":"jobs"}`))
		d.expect(got, 403, "E_CAP_SCOPE")
		if want := `token does not allow "recv" on queue "jobs"; it allows send on all queues`; got.fields["detail"] != want {
			t.Errorf("got %s", got.body)
		}
		for token, want := range map[string]string{"": "send it in the header Authorization: Bearer TOKEN", "garbage": "not a token; copy all of it"} {
			if got := d.do(t.Context(), token, "/v1/recv", strings.NewReader(`{"topic":"jobs"}`)); !strings.Contains(got.body, want) {
				t.Errorf("token %q: got %s", token, got.body)
			}
		}
	})
}

// TestPeekSearchesWithCursor: CNT-2 over HTTP: the last line says how far a search looked and where to go on.
func TestPeekSearchesWithCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for _, body := range []string{"a 1", "b", "a 2"} {
			d.expect(d.post("/v1/queues/jobs/messages?group=g&priority=2", body), 200, "")
		}
		type line struct {
			Payload []byte         `json:"payload_b64"`
			Looked  map[string]int `json:"looked"`
			Cursor  string         `json:"cursor"`
		}
		search := func(request string) (bodies []string, last line) {
			got := d.post("/v1/peek", request)
			d.expect(got, 200, "")
			for text := range strings.Lines(got.body) {
				last = line{}
				if err := json.Unmarshal([]byte(text), &last); err != nil {
					t.Fatal(err)
				}
				if last.Looked == nil {
					bodies = append(bodies, string(last.Payload))
				}
			}
			return bodies, last
		}
		bodies, last := search(`{"topic":"jobs","text":"a","group":"g","priority":2,"limit":1,"cursor":""}`)
		if !slices.Equal(bodies, []string{"a 1"}) || last.Looked["ready"] != 1 || last.Cursor == "" {
			t.Errorf("got %q, %+v; want the first, and a cursor", bodies, last)
		}
		bodies, last = search(`{"topic":"jobs","text":"a","limit":5,"within_ms":1000,"cursor":"` + last.Cursor + `"}`)
		if !slices.Equal(bodies, []string{"a 2"}) || last.Looked["ready"] != 2 || last.Cursor != "" {
			t.Errorf("going on: got %q, %+v; want the last, and the end", bodies, last)
		}
		if bodies, last = search(`{"topic":"jobs","text":"a"}`); len(bodies) != 2 || last.Looked != nil {
			t.Errorf("without a cursor: got %q, %+v; want two, and no last line", bodies, last)
		}
		if got := d.page("/v1/queues/jobs/messages?text=b&priority=2&cursor=&within_ms=5"); got.status != 200 || !strings.Contains(got.body, `{"looked":{"dead":0,"delayed":0,"in flight":0,"ready":3},"cursor":""}`) {
			t.Errorf("by GET: %s", got.body)
		}
		for request, field := range map[string]string{
			`{"topic":"jobs","cursor":"nonsense"}`: "cursor", `{"topic":"jobs","cursor":"","within_ms":60000}`: "within_ms", `{"topic":"jobs","within_ms":5}`: "within_ms",
		} {
			got := d.post("/v1/peek", request)
			if got.status != 400 || got.fields["field"] != field {
				t.Errorf("%s: got %d %s, want a refusal of %s", request, got.status, got.body, field)
			}
		}
	})
}
