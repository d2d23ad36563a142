package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/mainloop/openai"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standIn is a model server with the answers of a test.
func standIn(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server
}

// say writes an answer. Its error is ignored: the client may be gone.
func say(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// adapter returns an adapter for a server that leaves no connection behind.
func adapter(server *httptest.Server, options openai.Options) *openai.Adapter {
	options.Client = server.Client()
	return openai.New(server.URL+"/v1/", &options)
}

const answerText = `{"id":"c-1","model":"large-2","choices":[{"message":{"role":"assistant","content":"four"},"finish_reason":"stop"}],
	"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":8}}}`

func TestPromptsFollowTheProtocol(t *testing.T) {
	var got map[string]any
	var header http.Header
	server := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		say(w, answerText)
	})
	temperature := 0.5
	prompt := &mainloop.Prompt{
		Turns: []mainloop.Turn{
			{Role: mainloop.RoleSystem, Text: "be brief"},
			{Role: mainloop.RoleUser, Text: "2+2?"},
			{Role: mainloop.RoleAssistant, ToolCalls: []mainloop.ToolCall{{ID: "t-1", Name: "add", Arguments: json.RawMessage(`[2,2]`)}}},
			{Role: mainloop.RoleTool, ToolCallID: "t-1", Text: "4"},
		},
		Tools:           []mainloop.Tool{{Name: "add", Description: "adds", Parameters: json.RawMessage(`{"type":"array"}`)}},
		Schema:          json.RawMessage(`{"type":"string"}`),
		MaxOutputTokens: 100, Temperature: &temperature,
	}
	response, err := adapter(server, openai.Options{Model: "large", APIKey: "secret", Header: http.Header{"X-Team": {"tea"}}}).Evaluate(t.Context(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	if response.Text != "four" || response.ID != "c-1" || response.Model != "large-2" || response.FinishReason != "stop" ||
		response.Usage != (mainloop.Usage{InputTokens: 12, OutputTokens: 3, CachedTokens: 8}) {
		t.Errorf("the response is %+v", response)
	}
	if header.Get("Authorization") != "Bearer secret" || header.Get("X-Team") != "tea" || header.Get("Content-Type") != "application/json" {
		t.Errorf("the header is %v", header)
	}
	const want = `{"max_completion_tokens":100,"messages":[{"content":"be brief","role":"system"},{"content":"2+2?","role":"user"},` +
		`{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"[2,2]","name":"add"},"id":"t-1","type":"function"}]},` +
		`{"content":"4","role":"tool","tool_call_id":"t-1"}],"model":"large",` +
		`"response_format":{"json_schema":{"name":"answer","schema":{"type":"string"},"strict":true},"type":"json_schema"},` +
		`"stream":false,"temperature":0.5,"tools":[{"function":{"description":"adds","name":"add","parameters":{"type":"array"}},"type":"function"}]}`
	if text, err := json.Marshal(got); err != nil || string(text) != want {
		t.Errorf("asked was\n%s, want\n%s", text, want)
	}
	plain := openai.Options{Model: "large", MaxTokensField: "max_tokens"}
	got = nil
	if _, err := adapter(server, plain).Evaluate(t.Context(), &mainloop.Prompt{Model: "small", MaxOutputTokens: 7}); err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(got); string(text) != `{"max_tokens":7,"messages":[],"model":"small","stream":false}` || header.Get("Authorization") != "" {
		t.Errorf("asked was %s", text)
	}
}

func TestToolCallsAreUnderstood(t *testing.T) {
	server := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
		say(w, `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"t-1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}},
			{"id":"t-2","type":"function","function":{"name":"now","arguments":""}}]},"finish_reason":"tool_calls"}]}`)
	})
	response, err := adapter(server, openai.Options{}).Evaluate(t.Context(), mainloop.Ask("?"))
	if err != nil || len(response.ToolCalls) != 2 || response.ToolCalls[0].Name != "add" || string(response.ToolCalls[0].Arguments) != `{"a":1}` || response.ToolCalls[1].ID != "t-2" {
		t.Errorf("the response is %+v, %v", response, err)
	}
}

func TestErrorsAreClassified(t *testing.T) {
	for name, test := range map[string]struct {
		status    int
		body      string
		header    [2]string
		code      mailbox.Code
		retryable bool
		after     time.Duration
	}{
		"rate limit":         {429, `{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}`, [2]string{"Retry-After", "7"}, mainloop.ErrRateLimited, true, 7 * time.Second},
		"rate limit, exact":  {429, ``, [2]string{"Retry-After-Ms", "1500"}, mainloop.ErrRateLimited, true, 1500 * time.Millisecond},
		"rate limit, absurd": {429, ``, [2]string{"Retry-After", "1e300"}, mainloop.ErrRateLimited, true, 24 * time.Hour},
		"rate limit, past":   {429, ``, [2]string{"Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"}, mainloop.ErrRateLimited, true, 0},
		"rate limit, NaN":    {429, ``, [2]string{"Retry-After", "NaN"}, mainloop.ErrRateLimited, true, 0},
		"quota":              {429, `{"error":{"message":"pay","code":"insufficient_quota"}}`, [2]string{}, mainloop.ErrQuota, false, 0},
		"payment":            {402, ``, [2]string{}, mainloop.ErrQuota, false, 0},
		"server":             {500, `oops`, [2]string{}, mainloop.ErrModelUnavailable, true, 0},
		"bad gateway":        {502, `<html>`, [2]string{}, mainloop.ErrModelUnavailable, true, 0},
		"overloaded":         {529, ``, [2]string{"Retry-After", "-3"}, mainloop.ErrModelUnavailable, true, 0},
		"timeout":            {408, ``, [2]string{}, mainloop.ErrModelUnavailable, true, 0},
		"validation":         {400, `{"error":{"message":"too long","code":"context_length_exceeded","type":"invalid_request_error"}}`, [2]string{}, mainloop.ErrRejected, false, 0},
		"number as code":     {400, `{"error":{"message":"bad","code":400}}`, [2]string{}, mainloop.ErrRejected, false, 0},
		"no such model":      {404, ``, [2]string{}, mainloop.ErrRejected, false, 0},
		"unprocessable":      {422, ``, [2]string{}, mainloop.ErrRejected, false, 0},
		"policy":             {400, `{"error":{"message":"no weapons","code":"content_policy_violation"}}`, [2]string{}, mainloop.ErrPolicy, false, 0},
		"key":                {401, ``, [2]string{}, mainloop.ErrCredentials, false, 0},
		"forbidden":          {403, ``, [2]string{}, mainloop.ErrCredentials, false, 0},
		"no JSON":            {200, `four`, [2]string{}, mainloop.ErrModelUnavailable, true, 0},
		"no choice":          {200, `{}`, [2]string{}, mainloop.ErrModelUnavailable, true, 0},
		"bad arguments":      {200, `{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}}]}`, [2]string{}, mainloop.ErrModelUnavailable, true, 0},
		"filtered":           {200, `{"choices":[{"message":{"content":"f"},"finish_reason":"content_filter"}],"usage":{"prompt_tokens":5}}`, [2]string{}, mainloop.ErrPolicy, false, 0},
		"refused":            {200, `{"choices":[{"message":{"content":null,"refusal":"I will not"},"finish_reason":"stop"}]}`, [2]string{}, mainloop.ErrPolicy, false, 0},
	} {
		server := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
			if test.header[0] != "" {
				w.Header().Set(test.header[0], test.header[1])
			}
			w.WriteHeader(test.status)
			say(w, test.body)
		})
		response, err := adapter(server, openai.Options{}).Evaluate(t.Context(), mainloop.Ask("?"))
		failed, ok := errors.AsType[*mainloop.AdapterError](err)
		if !ok || failed.Code != test.code || !errors.Is(err, test.code) || mainloop.Final(err) == test.retryable || failed.RetryAfter != test.after {
			t.Errorf("%s: the error is %#v", name, err)
		}
		if name == "filtered" && response.Usage.InputTokens != 5 {
			t.Errorf("what a filtered answer used is lost: %+v", response)
		}
		if name == "validation" && failed.Error() != "rejected by model server (400 Bad Request): too long" {
			t.Errorf("the error says %v", failed)
		}
	}
}

func TestUnansweredCallsReturnErrors(t *testing.T) {
	release := make(chan struct{})
	server := standIn(t, func(http.ResponseWriter, *http.Request) { <-release })
	model := adapter(server, openai.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := model.Evaluate(ctx, mainloop.Ask("?")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mainloop.ErrModelUnavailable) {
		t.Errorf("the end of the context is %v", err)
	}
	close(release)
	server.Close()
	_, err := model.Evaluate(t.Context(), mainloop.Ask("?"))
	if !errors.Is(err, mainloop.ErrModelUnavailable) || strings.Contains(err.Error(), "chat/completions") {
		t.Errorf("a server that is gone is %v", err)
	}
	if _, err := openai.New("::", nil).Evaluate(t.Context(), mainloop.Ask("?")); !errors.Is(err, mainloop.ErrRejected) {
		t.Errorf("a URL that is none is %v", err)
	}
	bad := mainloop.Ask("?")
	bad.Schema = json.RawMessage("{")
	if _, err := model.Evaluate(t.Context(), bad); !errors.Is(err, mainloop.ErrRejected) {
		t.Errorf("a schema that is none is %v", err)
	}
	cut := standIn(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		say(w, "{")
	})
	if _, err := adapter(cut, openai.Options{}).Evaluate(t.Context(), mainloop.Ask("?")); !errors.Is(err, mainloop.ErrModelUnavailable) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an answer that is cut is %v", err)
	}
}

// From the mailbox to the server and back: a rate limit, a tool, an answer.
func TestMainLoopCallsServer(t *testing.T) {
	var asked atomic.Int32
	server := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch asked.Add(1) {
		case 1:
			w.Header().Set("Retry-After-Ms", "20")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			say(w, `{"choices":[{"message":{"tool_calls":[{"id":"t-1","function":{"name":"add","arguments":"[2,2]"}}]}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}`)
		default:
			if !strings.Contains(string(body), `"tool_call_id":"t-1"`) || !strings.Contains(string(body), "it is 4") {
				t.Errorf("the tool's answer is not in %s", body)
			}
			say(w, answerText)
		}
	})
	type request = mainloop.Request[string]
	store := reply.NewMemory(nil)
	backend := membox.New(nil)
	defer backend.Close()
	requests, err := mailbox.Open(t.Context(), backend, "requests", &mailbox.Options[request]{Replies: store})
	if err != nil {
		t.Fatal(err)
	}
	add := mainloop.Tool{Name: "add", Call: func(context.Context, json.RawMessage) (string, error) { return "it is 4", nil }}
	loop := mainloop.New(requests, adapter(server, openai.Options{Model: "large"}), func(_ context.Context, run *mainloop.Run[string]) (*mainloop.Prompt, error) {
		prompt := mainloop.Ask(run.Request.Body)
		prompt.Tools = []mainloop.Tool{add}
		return prompt, nil
	}, &mainloop.Options[string, string]{Worker: worker.Options[request]{DeadLetters: &deadletter.Policy[request]{}, Backoff: worker.NoBackoff}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	result, err := mainloop.NewClient[string, string](requests, store, nil).Call(t.Context(), mainloop.NewRequest("2+2?"))
	if err != nil || result.Output != "four" || result.Run.Attempt != 2 || result.Usage != (mainloop.Usage{InputTokens: 22, OutputTokens: 4, CachedTokens: 8}) {
		t.Errorf("the result is %+v, %v", result, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
