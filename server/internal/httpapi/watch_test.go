package httpapi_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// A watch is a stream of server-sent events.
type watch struct {
	t        *testing.T
	response *http.Response
	lines    *bufio.Scanner
}

type watchData struct {
	Queues []struct {
		Name      string `json:"topic"`
		Ready     int
		PerSecond struct{ Sent float64 } `json:"per_second"`
		Error     *struct{ Code string }
	}
	Code   string
	Reason string
	CorrID string `json:"corr_id"`
}

// watch opens a stream; query is that of the address.
func (d *env) watch(t *testing.T, token capability.Token, query string, headers ...string) *watch {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://mailbox/v1/watch?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Reveal())
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return &watch{t, response, bufio.NewScanner(response.Body)}
}

// next returns the next event; its name is empty at the end of the stream.
func (w *watch) next() (name string, data watchData) {
	w.t.Helper()
	for w.lines.Scan() {
		switch line := w.lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			if err := json.Unmarshal([]byte(line[len("data: "):]), &data); err != nil {
				w.t.Errorf("%s: %v", line, err)
			}
		case line == "":
			return name, data
		}
	}
	return "", data
}

func (w *watch) close() { _ = w.response.Body.Close() }

func TestWatchStreamsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/send", hello), 200, "")
		w := d.watch(t, d.token, "queue=t", "X-Corr-Id", "my-id")
		defer w.close()
		if w.response.StatusCode != 200 || w.response.Header.Get("Content-Type") != "text/event-stream" || w.response.Header.Get("X-Corr-Id") != "my-id" {
			t.Errorf("got %d %v", w.response.StatusCode, w.response.Header)
		}
		if name, data := w.next(); name != "queues" || len(data.Queues) != 1 || data.Queues[0].Name != "t" || data.Queues[0].Ready != 1 {
			t.Errorf("first %q %+v", name, data)
		}
		for range 5 { // silence is longer than the write timeout
			if name, _ := w.next(); name != "heartbeat" {
				t.Errorf("without a change: %q", name)
			}
		}
		d.expect(d.post("/v1/send", `{"topic":"t","idem_key":"other","payload_b64":""}`), 200, "")
		if name, data := w.next(); name != "queues" || len(data.Queues) != 1 || data.Queues[0].Ready != 2 || data.Queues[0].PerSecond.Sent == 0 {
			t.Errorf("after a send: %q %+v", name, data)
		}
		d.expect(d.post("/v1/queues/delete", `{"topic":"t"}`), 200, "")
		for {
			name, data := w.next()
			if name == "queues" && data.Queues[0].Error != nil {
				if data.Queues[0].Error.Code != "E_NOT_FOUND" {
					t.Errorf("deleted: %+v", data)
				}
				break
			}
		}
	})
}

func TestWatchIsRefusedBeforeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/send", hello), 200, "")
		stats := d.mint(t, "", capability.Operations(capability.OpStats), capability.Queues(capability.Queue("t")))
		for _, test := range []struct {
			token  capability.Token
			query  string
			status int
			says   string
		}{
			{d.token, "", 400, `"field":"queue"`},
			{d.token, "queue=t&every_ms=1", 400, `"field":"every_ms"`},
			{d.token, "queue=t&size=1", 400, "unknown field"},
			{d.token, "queue=nowhere", 404, "does not exist"},
			{stats, "queue=t,u", 403, `on queue \"u\"`},
			{stats, "queue=shop.*", 403, `on all queues under \"shop.\"`},
			{d.mint(t, "acme"), "queue=t", 404, "E_NOT_FOUND"},
		} {
			w := d.watch(t, test.token, test.query)
			body := ""
			for w.lines.Scan() {
				body += w.lines.Text()
			}
			w.close()
			if w.response.StatusCode != test.status || !strings.Contains(body, test.says) {
				t.Errorf("%s: got %d %s, want %d with %s", test.query, w.response.StatusCode, body, test.status, test.says)
			}
		}
	})
}

// TestWatchShareRefusalNamesShare is OPS-4.
func TestWatchShareRefusalNamesShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/send", hello), 200, "")
		var open []*watch
		defer func() {
			for _, w := range open {
				w.close()
			}
		}()
		for {
			w := d.watch(t, d.token, "queue=*")
			open = append(open, w)
			if w.response.StatusCode == 200 {
				continue
			}
			w.lines.Scan()
			if w.response.StatusCode != 429 || w.response.Header.Get("Retry-After") == "" || !strings.Contains(w.lines.Text(), "watched queues share of the token used up") {
				t.Errorf("after %d streams: %d %s", len(open), w.response.StatusCode, w.lines.Text())
			}
			return
		}
	})
}

// TestOperatorWatchesQueuesOfTenant: the header of looks works for watches too, and for operators only.
func TestOperatorWatchesQueuesOfTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		acme := d.mint(t, "acme")
		d.expect(d.do(t.Context(), acme.Reveal(), "/v1/send", strings.NewReader(hello)), 200, "")
		w := d.watch(t, d.token, "queue=*", "X-Mailbox-Tenant", "acme")
		if name, data := w.next(); name != "queues" || len(data.Queues) != 1 || data.Queues[0].Name != "t" {
			t.Errorf("operator: %q %+v", name, data)
		}
		w.close()
		w = d.watch(t, d.mint(t, "other"), "queue=*", "X-Mailbox-Tenant", "acme")
		if w.response.StatusCode != 403 {
			t.Errorf("another tenant: status %d", w.response.StatusCode)
		}
		w.close()
	})
}

// TestWatchEndsWithReason is CAP-3 and SVC-9.
func TestWatchEndsWithReason(t *testing.T) {
	for _, test := range []struct{ name, code, reason string }{{"revoked", "E_CAP_AUTH", "revoked"}, {"expired", "E_CAP_AUTH", "expired"}, {"drain", "E_UNAVAILABLE", ""}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t, broker.Limits{}, driver.Config{})
				d.expect(d.post("/v1/send", hello), 200, "")
				token := d.mint(t, "", capability.Operations(capability.OpStats), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Minute)))
				w := d.watch(t, token, "queue=t", "X-Corr-Id", "my-id")
				defer w.close()
				w.next()
				ends := time.Now()
				switch test.name {
				case "revoked":
					d.expect(d.post("/v1/caps/revoke", `{"token":"`+token.Reveal()+`"}`), 200, "")
				case "expired":
					ends = ends.Add(time.Minute)
				case "drain":
					d.broker.SetState(broker.StateSettling)
				}
				name, data := w.next()
				for name == "heartbeat" {
					name, data = w.next()
				}
				if late := time.Since(ends); name != "end" || data.Code != test.code || data.Reason != test.reason || data.CorrID != "my-id" || late < 0 || late > verify.MinCacheTTL {
					t.Errorf("%q %+v, %v after the end", name, data, late)
				}
				if name, _ := w.next(); name != "" {
					t.Errorf("after the end: %q", name)
				}
			})
		})
	}
}

// TestWatchOfClientThatDoesNotReadIsCut: it takes nothing but its own stream.
func TestWatchOfClientThatDoesNotReadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for _, queue := range []string{"t", "u"} {
			d.expect(d.post("/v1/send", strings.Replace(hello, `"t"`, `"`+queue+`"`, 1)), 200, "")
		}
		w := d.watch(t, d.token, "queue=*")
		defer w.close()
		for range 20 {
			d.expect(d.post("/v1/send/batch", `{"topic":"t","messages":[{"payload_b64":""}]}`), 200, "")
			time.Sleep(time.Second)
		}
		for _, s := range d.broker.Shares() {
			if s.Resource == "watched queues" && s.Used > 0 {
				t.Errorf("after 20 s without reading %d units are held", s.Used)
			}
		}
	})
}
