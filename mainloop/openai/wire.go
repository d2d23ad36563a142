package openai

import (
	"encoding/json"
	"errors"

	"github.com/mailboxmq/mailbox/mainloop"
)

// The parts of the protocol that the adapter uses.
type (
	turn struct {
		Role       mainloop.Role `json:"role"`
		Content    *string       `json:"content"`
		Refusal    string        `json:"refusal,omitempty"`
		ToolCalls  []toolCall    `json:"tool_calls,omitempty"`
		ToolCallID string        `json:"tool_call_id,omitempty"`
	}
	toolCall struct {
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function functionCall `json:"function"`
	}
	functionCall struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"` // JSON in a string
	}
	tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	completion struct {
		ID      string   `json:"id"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   usage    `json:"usage"`
	}
	choice struct {
		Message      turn   `json:"message"`
		FinishReason string `json:"finish_reason"`
	}
	usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		PromptDetails    struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
)

// finishFiltered is the finish reason of an answer that a filter cut.
const finishFiltered = "content_filter"

// encode returns the body of a request.
func (a *Adapter) encode(prompt *mainloop.Prompt) ([]byte, error) {
	model := prompt.Model
	if model == "" {
		model = a.options.Model
	}
	body := map[string]any{"model": model, "messages": turns(prompt.Turns), "stream": false}
	if prompt.MaxOutputTokens > 0 {
		body[a.options.MaxTokensField] = prompt.MaxOutputTokens
	}
	if prompt.Temperature != nil {
		body["temperature"] = *prompt.Temperature
	}
	if len(prompt.Tools) > 0 {
		tools := make([]tool, len(prompt.Tools))
		for i, t := range prompt.Tools {
			tools[i] = tool{"function", function{t.Name, t.Description, t.Parameters}}
		}
		body["tools"] = tools
	}
	if prompt.Schema != nil {
		body["response_format"] = map[string]any{
			"type":        "json_schema",
			"json_schema": map[string]any{"name": "answer", "strict": true, "schema": prompt.Schema},
		}
	}
	return json.Marshal(body)
}

func turns(said []mainloop.Turn) []turn {
	all := make([]turn, len(said))
	for i, t := range said {
		all[i] = turn{Role: t.Role, Content: &t.Text, ToolCallID: t.ToolCallID}
		for _, call := range t.ToolCalls {
			all[i].ToolCalls = append(all[i].ToolCalls, toolCall{call.ID, "function", functionCall{call.Name, string(call.Arguments)}})
		}
		if t.Text == "" && len(t.ToolCalls) > 0 {
			all[i].Content = nil // as the server said it
		}
	}
	return all
}

// response returns the answer of the model. It has the usage even if there is no answer.
func (c *completion) response() (mainloop.Response, error) {
	response := mainloop.Response{ID: c.ID, Model: c.Model, Usage: mainloop.Usage{
		InputTokens: max(0, c.Usage.PromptTokens), OutputTokens: max(0, c.Usage.CompletionTokens),
		CachedTokens: max(0, c.Usage.PromptDetails.CachedTokens),
	}}
	if len(c.Choices) == 0 {
		return response, errors.New("no choices")
	}
	first := c.Choices[0]
	response.FinishReason = first.FinishReason
	if first.Message.Content != nil {
		response.Text = *first.Message.Content
	}
	for _, call := range first.Message.ToolCalls {
		arguments := json.RawMessage(call.Function.Arguments)
		if len(arguments) > 0 && !json.Valid(arguments) {
			return response, errors.New("the arguments of a tool call are not JSON")
		}
		response.ToolCalls = append(response.ToolCalls, mainloop.ToolCall{ID: call.ID, Name: call.Function.Name, Arguments: arguments})
	}
	return response, nil
}

// filtered returns why the server filtered the answer; empty if it did not.
func (c *completion) filtered() string {
	switch first := c.Choices[0]; {
	case first.Message.Refusal != "":
		return first.Message.Refusal
	case first.FinishReason == finishFiltered:
		return "the answer was cut by a filter"
	}
	return ""
}
