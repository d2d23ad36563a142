// Package openai asks models on servers that speak the protocol of OpenAI's chat
// completions, which many do.
//
//	model := openai.New("https://models.example.com/v1", &openai.Options{Model: "large", APIKey: key})
//	loop := mainloop.New(requests, model, prepare, nil)
//
// Answers are not streamed. Errors are *mainloop.AdapterError values, so that a
// main loop tries those again that may pass, a limited rate or a server in
// trouble, and gives up on the others at once.
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

// maxAnswerBytes bounds what is read of an answer.
const maxAnswerBytes = 32 << 20

// Options configure an Adapter. The zero value, and nil, are the defaults.
type Options struct {
	// Model is asked if the prompt names none.
	Model string
	// APIKey is sent as a bearer token. Empty means none.
	APIKey string
	// Header is sent with each request, as some servers want it.
	Header http.Header
	// MaxTokensField is how the server calls the bound on the answer. Empty means
	// max_completion_tokens; older servers want max_tokens.
	MaxTokensField string
	// Client sends the requests. Nil means one without a time limit of its own:
	// the context has one. Redirects are refused, unless its CheckRedirect says
	// otherwise: they would take keys and prompts to wherever the server likes.
	Client *http.Client
}

// An Adapter asks the models of one server. Make one with New. It is safe for
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

// Evaluate asks once. It blocks until the server has answered, and returns early
// when ctx ends, with the context's error. Codes: those of mainloop about model
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
	defer func() { _ = answer.Body.Close() }() // all is read, or nothing more is wanted
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	switch {
	case ctx.Err() == nil && (answer.StatusCode < 200 || answer.StatusCode > 299):
		return mainloop.Response{}, a.refusal(answer, body) // whether or not all of it came
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

// unanswered is the error of a request that got no answer.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &mainloop.AdapterError{Code: mainloop.ErrModelUnavailable, Err: withoutURL(err)}
}

// withoutURL leaves out what package http adds to an error: the URL, which may have
// a password in it.
func withoutURL(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// senseless is the error of an answer that is none.
func senseless(answer *http.Response, err error) error {
	return &mainloop.AdapterError{Code: mainloop.ErrModelUnavailable, Status: answer.StatusCode, Detail: "the answer makes no sense", Err: err}
}
