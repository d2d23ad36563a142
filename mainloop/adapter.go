package mainloop

import "context"

// An Adapter calls a model. It must be safe for concurrent use.
type Adapter interface {
	// Evaluate calls the model once and returns its response. It blocks until then,
	// and returns early, with the context's error, when ctx ends. It must not change
	// the prompt, and does not retry: an *AdapterError says whether a retry may help.
	// The usage of a response counts even if there is an error.
	Evaluate(ctx context.Context, prompt *Prompt) (Response, error)
}

// AdapterFunc makes an Adapter from a function: for models within the process, agents
// without a model, and tests.
type AdapterFunc func(ctx context.Context, prompt *Prompt) (Response, error)

// Evaluate calls the function.
func (f AdapterFunc) Evaluate(ctx context.Context, prompt *Prompt) (Response, error) {
	return f(ctx, prompt)
}

// A Response is the answer of a model.
type Response struct {
	// ID and Model are the server's names for the answer and the model.
	ID    string
	Model string
	// Text is the answer. If there are ToolCalls, the model wants their results first.
	Text      string
	ToolCalls []ToolCall
	// FinishReason is why the model stopped, in the server's words.
	FinishReason string
	Usage        Usage
}
