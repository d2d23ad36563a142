package openai_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/mainloop/openai"
)

// secrets are options that must not appear in errors.
func secrets() openai.Options {
	return openai.Options{APIKey: "sk-very-secret-key", Header: http.Header{"Api-Key": {"azure-secret-key"}}}
}

func TestServerCannotSendKeysAndPromptsElsewhere(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var stolen atomic.Value
		elsewhere := standIn(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			stolen.Store(r.Header.Get("Api-Key") + r.Header.Get("Authorization") + string(body))
			say(w, answerText)
		})
		server := standIn(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/?token=1", status)
		})
		_, err := adapter(server, secrets()).Evaluate(t.Context(), mainloop.Ask("in confidence"))
		failed, ok := errors.AsType[*mainloop.AdapterError](err)
		if !ok || failed.Code != mainloop.ErrRejected || failed.Status != status {
			t.Errorf("%d: the error is %v", status, err)
		}
		if got := stolen.Load(); got != nil {
			t.Errorf("%d: another server was given %q", status, got)
		}
	}
}

func TestRepeatedKeysAreRedacted(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusInternalServerError} {
		server := standIn(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			say(w, `{"error":{"message":"bad key `+r.Header.Get("Authorization")+`, and `+r.Header.Get("Api-Key")+`"}}`)
		})
		_, err := adapter(server, secrets()).Evaluate(t.Context(), mainloop.Ask("?"))
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "bad key") {
			t.Errorf("the error is %v", err)
		}
	}
	_, err := openai.New("http://user:secret@[::1]:namedport/", nil).Evaluate(t.Context(), mainloop.Ask("?"))
	if !errors.Is(err, mainloop.ErrRejected) || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error of a URL that is none is %v", err)
	}
}

func TestTruncatedRefusalIsRefusal(t *testing.T) {
	for status, code := range map[int]mailbox.Code{401: mainloop.ErrCredentials, 429: mainloop.ErrRateLimited, 400: mainloop.ErrRejected} {
		server := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(status)
			say(w, `{"error":{"mess`)
		})
		_, err := adapter(server, openai.Options{}).Evaluate(t.Context(), mainloop.Ask("?"))
		failed, ok := errors.AsType[*mainloop.AdapterError](err)
		if !ok || failed.Code != code || failed.RetryAfter != 7*time.Second {
			t.Errorf("%d: the error is %v", status, err)
		}
	}
}

func TestServerCannotRaiseBudget(t *testing.T) {
	for _, usage := range []string{
		`{"prompt_tokens":-1000000,"completion_tokens":-5,"prompt_tokens_details":{"cached_tokens":-1}}`,
		`{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807}`,
	} {
		server := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
			say(w, `{"choices":[{"message":{"content":"4"}}],"usage":`+usage+`}`)
		})
		tracker := mainloop.NewTracker(mainloop.Budget{MaxTotalTokens: 100})
		tracker.Record("before", mainloop.Usage{InputTokens: 99})
		for _, evaluation := range []string{"a", "b"} {
			response, err := adapter(server, openai.Options{}).Evaluate(t.Context(), mainloop.Ask("?"))
			if err != nil {
				t.Fatal(err)
			}
			tracker.Record(evaluation, response.Usage)
		}
		if used := tracker.Consumed(); used.TotalTokens() < 99 || used.InputTokens < 99 || used.CachedTokens < 0 {
			t.Errorf("with %s, %+v are used, %d in all", usage, used, used.TotalTokens())
		}
		tracker.Record("after", mainloop.Usage{InputTokens: 2})
		if err := tracker.Check(); !errors.Is(err, mainloop.ErrBudget) {
			t.Errorf("with %s, what is over the budget is %v", usage, err)
		}
	}
	tracker := mainloop.NewTracker(mainloop.Budget{MaxTotalTokens: 100})
	tracker.Record("own", mainloop.Usage{InputTokens: math.MinInt, OutputTokens: -1})
	tracker.Record("other", mainloop.Usage{InputTokens: 101})
	if err := tracker.Check(); !errors.Is(err, mainloop.ErrBudget) {
		t.Errorf("what is over the budget is %v", err)
	}
}

func TestHugeAnswersAreNotReadFully(t *testing.T) {
	var written atomic.Int64
	server := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := strings.Repeat(" ", 1<<20)
		for range 512 { // more than sockets buffer
			n, err := io.WriteString(w, chunk)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	_, err := adapter(server, openai.Options{}).Evaluate(t.Context(), mainloop.Ask("?"))
	if !errors.Is(err, mainloop.ErrModelUnavailable) {
		t.Errorf("the error is %v", err)
	}
	server.Close() // which waits for the handler
	if written.Load() == 512<<20 {
		t.Error("all of it was read")
	}
}
