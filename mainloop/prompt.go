package mainloop

import (
	"context"
	"encoding/json"
)

// A Prompt is what a model is asked: a conversation so far, and what the model may
// do.
type Prompt struct {
	// Model is the model's name. Empty means the adapter's default.
	Model string
	Turns []Turn
	// Tools are what the model may ask for.
	Tools []Tool
	// Schema is the JSON schema that the answer has to follow. Nil means that it
	// is free text.
	Schema json.RawMessage
	// MaxOutputTokens bounds one answer. 0 means the server's default. A budget
	// that leaves less beats it.
	MaxOutputTokens int
	// Temperature is how much chance there is in the answer. Nil means the
	// server's default.
	Temperature *float64
}

// Ask returns a prompt with one question.
func Ask(question string) *Prompt {
	return &Prompt{Turns: []Turn{{Role: RoleUser, Text: question}}}
}

// A Role is who speaks.
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
	// ToolCalls are what the assistant asks for, and ToolCallID says which of
	// them a tool answers.
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// A Tool is something that a model may ask for.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON schema of the arguments. Nil means none.
	Parameters json.RawMessage
	// Call does it. Its error is told to the model, which may find another way;
	// the end of the context ends the run.
	Call func(ctx context.Context, arguments json.RawMessage) (string, error)
}

// A ToolCall is a model asking for a tool.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}
