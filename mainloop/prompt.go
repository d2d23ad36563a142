package mainloop

import (
	"context"
	"encoding/json"
)

// A Prompt is the input of a model: the conversation so far, and the tools it may use.
type Prompt struct {
	// Model is the model's name. Empty means the adapter's default.
	Model string
	Turns []Turn
	// Tools are what the model may call.
	Tools []Tool
	// Schema is the JSON schema of the answer. Nil means free text.
	Schema json.RawMessage
	// MaxOutputTokens bounds one answer. 0 means the server's default. If the budget
	// leaves less, that applies.
	MaxOutputTokens int
	// Temperature is the sampling temperature. Nil means the server's default.
	Temperature *float64
}

// Ask returns a prompt with one question.
func Ask(question string) *Prompt {
	return &Prompt{Turns: []Turn{{Role: RoleUser, Text: question}}}
}

// A Role is the author of a turn.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// A Turn is one contribution to a conversation.
type Turn struct {
	Role Role   `json:"role"`
	Text string `json:"text,omitempty"`
	// ToolCalls are the calls of the assistant, and ToolCallID the call that a tool's
	// turn answers.
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// A Tool is a function that a model may call.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON schema of the arguments. Nil means none.
	Parameters json.RawMessage
	// Call runs the tool. The model gets its error and may find another way; the end
	// of the context ends the run.
	Call func(ctx context.Context, arguments json.RawMessage) (string, error)
}

// A ToolCall is a model's call of a tool.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}
