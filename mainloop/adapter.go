package mainloop

import "context"

// An Adapter asks a model. It must be safe for concurrent use.
type Adapter interface {
	// Evaluate asks once and returns what the model said. It blocks until then,
	// and returns early, with the context's error, when ctx ends. It must not
	// change the prompt, and does not try again: errors that are *AdapterError say
	// whether that may help. A response that comes with an error counts for what
	// it used.
	Evaluate(ctx context.Context, prompt *Prompt) (Response, error)
}

// AdapterFunc is a function that is an Adapter: for models within the process,
// agents that need no model, and tests.
type AdapterFunc func(ctx context.Context, prompt *Prompt) (Response, error)

// Evaluate calls the function.
func (f AdapterFunc) Evaluate(ctx context.Context, prompt *Prompt) (Response, error) {
	return f(ctx, prompt)
}

// A Response is what a model has said.
type Response struct {
	// ID and Model are what the server calls the answer, and the model.
	ID    string
	Model string
	// Text is the answer. If there are ToolCalls, the model wants those first.
	Text      string
	ToolCalls []ToolCall
	// FinishReason is why the model stopped, in the server's words.
	FinishReason string
	Usage        Usage
}
