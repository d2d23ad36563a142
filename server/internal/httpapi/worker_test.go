package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestWorkersAreListedByNameAndQueue is CON-2 over HTTP.
func TestWorkersAreListedByNameAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for _, queue := range []string{"t", "u"} {
			d.expect(d.post("/v1/send", `{"topic":"`+queue+`","idem_key":"a","payload_b64":""}`), 200, "")
		}
		d.expect(d.post("/v1/recv", `{"topic":"t","visibility_ms":60000}`, "X-Mailbox-Worker", `<script>"w"</script>`, "User-Agent", "curl/8"), 200, "")
		time.Sleep(time.Second)
		d.expect(d.post("/v1/recv/stream", `{"topic":"u","visibility_ms":60000}`, "User-Agent", "curl/8"), 200, "")
		type worker struct {
			Queue                 string `json:"topic"`
			Name, Protocol, Token string
			InFlight              int `json:"in_flight"`
			Seen                  time.Time
			Held                  []struct {
				MessageID string    `json:"msg_id"`
				TakenAt   time.Time `json:"taken_at"`
				Until     time.Time
			}
		}
		list := func(query string) []worker {
			var answer struct{ Workers []worker }
			text := d.get("/v1/workers" + query)
			if err := json.Unmarshal([]byte(text), &answer); err != nil || !strings.Contains(text, `"workers":[`) {
				t.Fatalf("%s: %v", text, err)
			}
			return answer.Workers
		}
		all := list("")
		if len(all) != 2 || all[0].Name != `<script>"w"</script>` || all[1].Name != "curl/8" || all[1].Queue != "u" || all[0].Protocol != "http" || all[0].Held != nil {
			t.Fatalf("%+v", all)
		}
		one := list("?topic=t")
		if len(one) != 1 || one[0].InFlight != 1 || one[0].Token != d.token.ID().String() || time.Since(one[0].Seen) != time.Second {
			t.Fatalf("%+v", one)
		}
		if held := one[0].Held; len(held) != 1 || held[0].MessageID == "" || held[0].Until.Sub(held[0].TakenAt) != time.Minute {
			t.Errorf("%+v", one)
		}
		if none := list("?topic=missing"); len(none) != 0 {
			t.Errorf("%+v", none)
		}
		for _, bad := range []string{"a\tb", "\xff", strings.Repeat("x", 129)} {
			d.expect(d.post("/v1/recv", `{"topic":"t"}`, "X-Mailbox-Worker", bad), http.StatusBadRequest, "E_SCHEMA")
		}
	})
}

// TestProgressIsExtendedWith is OBS-0 over HTTP: /v1/extend takes the progress, and /v1/workers and /v1/life show it.
func TestProgressIsExtendedWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/send", `{"topic":"t","idem_key":"a","payload_b64":""}`), 200, "")
		var received struct {
			Messages []struct {
				ID      string `json:"msg_id"`
				Receipt string
			}
		}
		if err := json.Unmarshal([]byte(d.post("/v1/recv", `{"topic":"t","visibility_ms":60000}`).body), &received); err != nil || len(received.Messages) != 1 {
			t.Fatal(err)
		}
		id, receipt := received.Messages[0].ID, received.Messages[0].Receipt
		shown := func(want string) {
			t.Helper()
			if got := d.get("/v1/workers?topic=t"); !strings.Contains(got, want) {
				t.Errorf("workers: %s, want %s", got, want)
			}
			if got := d.post("/v1/life", `{"topic":"t","msg_id":"`+id+`"}`).body; !strings.Contains(got, want) {
				t.Errorf("life: %s, want %s", got, want)
			}
		}
		d.expect(d.post("/v1/extend/"+id, `{"visibility_ms":60000,"progress":{"fraction":0,"text":"page \"0\""}}`), 200, "")
		shown(`"progress":{"fraction":0,"text":"page \"0\"","at":"2000-01-01T00:00:00Z"}`)
		d.expect(d.post("/v1/extend", `{"topic":"t","extensions":[{"receipt":"`+receipt+`","visibility_ms":60000,"progress":{"text":"all pages"}}]}`), 200, "")
		shown(`"progress":{"text":"all pages","at":"2000-01-01T00:00:00Z"}`)
		d.expect(d.post("/v1/extend/"+id, `{"visibility_ms":60000}`), 200, "")
		shown(`"all pages"`)
		for body, want := range map[string]string{
			`{"fraction":1.5}`: "1.5", `{"fraction":1e999}`: "want a number", `{"fraction":"all"}`: "want a number", `{"text":"` + strings.Repeat("x", 201) + `"}`: "201 bytes, at most 200", `{"at":"2000-01-01T00:00:00Z"}`: "unknown field", `{"text":"\u0007"}`: "cannot be printed",
		} {
			a := d.post("/v1/extend/"+id, `{"visibility_ms":60000,"progress":`+body+`}`)
			d.expect(a, http.StatusBadRequest, "E_SCHEMA")
			if !strings.Contains(a.body, want) || !strings.Contains(a.body, `"field":"progress"`) && !strings.HasPrefix(want, "want") && want != "unknown field" {
				t.Errorf("%s: %s", body, a.body)
			}
		}
	})
}
