// Package openai calls models on servers that speak OpenAI's chat completions protocol,
// as many do.
//
//	model := openai.New("https://models.example.com/v1", &openai.Options{Model: "large", APIKey: key})
//	loop := mainloop.New(requests, model, prepare, nil)
//
// Answers are not streamed. Errors are *mainloop.AdapterError values, so that a main
// loop retries temporary ones, such as a rate limit, and gives up on the others at
// once.
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/mailboxmq/mailbox/mainloop"
)

// maxAnswerBytes bounds the size of an answer.
const maxAnswerBytes = 32 << 20

// Options configure an Adapter. The zero value, and nil, are the defaults.
type Options struct {
	// Model is used if the prompt names none.
	Model string
	// APIKey is sent as a bearer token. Empty means none.
	APIKey string
	// Header is sent with each request, for servers that need it.
	Header http.Header
	// MaxTokensField is the server's name for the limit on the answer. Empty means
	// max_completion_tokens; older servers use max_tokens.
	MaxTokensField string
	// Client sends the requests. Nil means a client without a timeout: the context
	// bounds the call. Redirects are refused unless its CheckRedirect allows them: they
	// would send keys and prompts to another server.
	Client *http.Client
}

// An Adapter calls the models of one server. Make one with New. It is safe for
// concurrent use.
type Adapter struct {
	url     string
	options Options
}

var _ mainloop.Adapter = (*Adapter)(nil)

// New returns an adapter for the server at baseURL, which is everything before
// /chat/completions. It does no I/O.
func New(baseURL string, options *Options) *Adapter {
	a := &Adapter{url: strings.TrimRight(baseURL, "/") + "/chat/completions"}
	if options != nil {
		a.options = *options
	}
	a.options.Header = a.options.Header.Clone()
	if a.options.MaxTokensField == "" {
		a.options.MaxTokensField = "max_completion_tokens"
	}
	client := http.Client{}
	if a.options.Client != nil {
		client = *a.options.Client
	}
	if client.CheckRedirect == nil {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	a.options.Client = &client
	return a
}

// Evaluate calls the server once. It blocks until the server has answered, and returns
// early when ctx ends, with the context's error. Codes: those of mainloop about model
// servers.
func (a *Adapter) Evaluate(ctx context.Context, prompt *mainloop.Prompt) (mainloop.Response, error) {
	request, err := a.newRequest(ctx, prompt)
	if err != nil {
		return mainloop.Response{}, err
	}
	answer, err := a.options.Client.Do(request)
	if err != nil {
		return mainloop.Response{}, unanswered(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }() // the rest is not needed
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	switch {
	case ctx.Err() == nil && (answer.StatusCode < 200 || answer.StatusCode > 299):
		return mainloop.Response{}, a.refusal(answer, body) // even if the body is incomplete
	case err != nil:
		return mainloop.Response{}, unanswered(ctx, err)
	case len(body) > maxAnswerBytes:
		return mainloop.Response{}, senseless(answer, fmt.Errorf("the answer has more than %d bytes", maxAnswerBytes))
	}
	var completion completion
	if err := json.Unmarshal(body, &completion); err != nil {
		return mainloop.Response{}, senseless(answer, err)
	}
	response, err := completion.response()
	if err != nil {
		return response, senseless(answer, err)
	}
	if filtered := completion.filtered(); filtered != "" {
		return response, &mainloop.AdapterError{Code: mainloop.ErrPolicy, Detail: filtered}
	}
	return response, nil
}

func (a *Adapter) newRequest(ctx context.Context, prompt *mainloop.Prompt) (*http.Request, error) {
	wrong := func(err error) error { return &mainloop.AdapterError{Code: mainloop.ErrRejected, Err: err} }
	body, err := a.encode(prompt)
	if err != nil {
		return nil, wrong(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return nil, wrong(withoutURL(err))
	}
	maps.Copy(request.Header, a.options.Header)
	request.Header.Set("Content-Type", "application/json")
	if a.options.APIKey != "" {
		request.Header.Set("Authorization", "Bearer "+a.options.APIKey)
	}
	return request, nil
}

// unanswered returns the error of a request without an answer.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &mainloop.AdapterError{Code: mainloop.ErrModelUnavailable, Err: withoutURL(err)}
}

// withoutURL removes the URL, which may contain a password, from an error of package
// http.
func withoutURL(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// senseless returns the error of an invalid answer.
func senseless(answer *http.Response, err error) error {
	return &mainloop.AdapterError{Code: mainloop.ErrModelUnavailable, Status: answer.StatusCode, Detail: "invalid answer", Err: err}
}
