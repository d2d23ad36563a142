package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// The tests in this file are about hostile clients.

func TestExpiredTokenIsRefusedOnEveryPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		expired, err := d.token.Narrow(capability.ExpiresAt(time.Now().Add(-time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		for path, body := range map[string]string{"/v1/ping": `{}`, "/v1/recv/cancel": `{"corr_id":"x"}`, "/v1/send": hello} {
			got := d.do(t.Context(), expired.Reveal(), path, strings.NewReader(body))
			if got.status != http.StatusUnauthorized || got.fields["reason"] != string(capability.ReasonExpired) {
				t.Errorf("%s with an expired token: %d %s", path, got.status, got.body)
			}
		}
	})
}

func TestOnlyStartingTokenCancelsReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		// Both have the id of the token from which they were narrowed.
		narrowed := func(queue string) string {
			t.Helper()
			pattern, err := capability.ParsePattern(queue)
			if err != nil {
				t.Fatal(err)
			}
			token, err := d.token.Narrow(capability.Queues(pattern))
			if err != nil {
				t.Fatal(err)
			}
			return token.Reveal()
		}
		mine, other := narrowed("t"), narrowed("u")
		d.post("/v1/send/batch", `{"topic":"t","messages":[]}`)
		ended := make(chan answer)
		go func() {
			ended <- d.do(t.Context(), mine, "/v1/recv", strings.NewReader(`{"topic":"t","wait_ms":60000}`), "X-Corr-Id", "wait-1")
		}()
		synctest.Wait()
		cancel := func(token string) any {
			t.Helper()
			return d.do(t.Context(), token, "/v1/recv/cancel", strings.NewReader(`{"corr_id":"wait-1"}`)).fields["cancelled"]
		}
		for who, token := range map[string]string{"another token of the same id": other, "the token that both are of": d.token.Reveal()} {
			if n := cancel(token); n != float64(0) {
				t.Errorf("%s cancelled %v receives of another client", who, n)
			}
		}
		if n := cancel(mine); n != float64(1) {
			t.Errorf("the token that started it cancelled %v receives", n)
		}
		d.expect(<-ended, 200, "")
	})
}

func TestTenantRevokesTokenThatItPresents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		acme, own, other := d.mint(t, "acme"), d.mint(t, "acme"), d.mint(t, "other")
		revoke := func(body string) answer {
			t.Helper()
			return d.do(t.Context(), acme.Reveal(), "/v1/caps/revoke", strings.NewReader(body))
		}
		d.expect(revoke(`{"token_id":"`+own.ID().String()+`"}`), 403, "E_CAP_SCOPE")
		d.expect(revoke(`{"token":"`+other.Reveal()+`"}`), 403, "E_CAP_SCOPE")
		d.expect(revoke(`{"token":"nonsense"}`), 400, "E_SCHEMA")
		d.expect(revoke(`{"token":"`+own.Reveal()+`","until":"2026-01-02T03:04:05Z"}`), 400, "E_SCHEMA")
		got := revoke(`{"token":"` + own.Reveal() + `"}`)
		d.expect(got, 200, "")
		d.expect(d.do(t.Context(), own.Reveal(), "/v1/ping", strings.NewReader(`{}`)), 401, "E_CAP_AUTH")
	})
}

func TestMetricsNeedTokenForAllQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		d.expect(d.post("/v1/send", strings.ReplaceAll(hello, `"t"`, `"layoffs-2027"`)), 200, "")
		get := func(token string) (int, string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://mailbox/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			response, err := d.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			return response.StatusCode, string(text)
		}
		sender, err := d.token.Narrow(capability.Operations(capability.OpSend))
		if err != nil {
			t.Fatal(err)
		}
		one, err := d.token.Narrow(capability.Queues(capability.Queue("orders")))
		if err != nil {
			t.Fatal(err)
		}
		for who, try := range map[string]struct {
			token string
			want  int
		}{
			"no token": {"", 401}, "a tenant": {d.mint(t, "acme").Reveal(), 403},
			"who may only send": {sender.Reveal(), 403}, "who may count one topic": {one.Reveal(), 403},
		} {
			if status, text := get(try.token); status != try.want || strings.Contains(text, "layoffs") {
				t.Errorf("%s got %d, want %d: %.200s", who, status, try.want, text)
			}
		}
		counter, err := d.token.Narrow(capability.Operations(capability.OpStats))
		if err != nil {
			t.Fatal(err)
		}
		if status, text := get(counter.Reveal()); status != 200 || !strings.Contains(text, `mailbox_queue_depth{queue="layoffs-2027",shard="0",state="ready"} 1`) {
			t.Errorf("who may count everything got %d: %.200s", status, text)
		}
	})
}

func TestTenantHeaderIsForLookingOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		operator, acme, other := d.mint(t, ""), d.mint(t, "acme"), d.mint(t, "other")
		d.expect(d.do(t.Context(), acme.Reveal(), "/v1/send", strings.NewReader(hello)), 200, "")
		post := func(token, tenant, path, body string) int {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://mailbox"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("X-Mailbox-Tenant", tenant)
			response, err := d.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
		const queue = `{"topic":"t"}`
		if got := post(operator.Reveal(), "acme", "/v1/stats", queue); got != 200 {
			t.Errorf("the operator counts with status %d", got)
		}
		for _, token := range []string{acme.Reveal(), other.Reveal()} {
			if got := post(token, "acme", "/v1/stats", queue); got != 403 {
				t.Errorf("a tenant counts with status %d", got)
			}
			if got := post(token, "*", "/v1/queues/list", `{}`); got != 403 {
				t.Errorf("a tenant lists all queues with status %d", got)
			}
		}
		for _, path := range []string{"/v1/purge", "/v1/queues/delete", "/v1/dlq/purge", "/v1/recv", "/v1/caps/mint"} {
			if got := post(operator.Reveal(), "acme", path, queue); got != 400 {
				t.Errorf("%s in a tenant has status %d, want 400", path, got)
			}
		}
	})
}

func TestRequestsWithoutTokenAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		ask := func(path, token string, status int) time.Duration {
			t.Helper()
			began := time.Now()
			for range 2000 {
				request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, nil)
				if token != "" {
					request.Header.Set("Authorization", "Bearer "+token)
				}
				recorder := httptest.NewRecorder()
				d.server.Handler.ServeHTTP(recorder, request)
				if recorder.Code != status {
					t.Fatalf("%s: status %d, want %d", path, recorder.Code, status)
				}
			}
			return time.Since(began)
		}
		for path, status := range map[string]int{
			"/healthz": http.StatusOK, "/v1/queues/orders/stats": http.StatusUnauthorized, "/nowhere": http.StatusNotFound,
		} {
			if took := ask(path, "", status); took < time.Second {
				t.Errorf("2,000 requests for %s without a token took %v", path, took)
			}
			time.Sleep(time.Minute) // none of them counts any more
		}
		if took := ask("/healthz", d.token.Reveal(), http.StatusOK); took != 0 {
			t.Errorf("2,000 requests with a token took %v", took)
		}
	})
}
