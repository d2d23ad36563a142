package mainloop

import (
	"time"

	"github.com/mailboxmq/mailbox"
)

// A Result is the reply to a Request: an output or an error.
type Result[Out any] struct {
	// RequestID is the id of the request.
	RequestID string `json:"request_id"`
	// Output is the agent's answer; the zero Out if there is an error.
	Output Out `json:"output,omitzero"`
	// Error is why there is no output, and ErrorKind the kind of the error.
	Error     string              `json:"error,omitempty"`
	ErrorKind mailbox.FailureKind `json:"error_kind,omitempty"`
	// SessionID is the id of the session; empty if the request failed before it began.
	SessionID string `json:"session_id,omitempty"`
	// Run is the attempt.
	Run RunContext `json:"run_context,omitzero"`
	// Usage is the usage of the attempt.
	Usage       Usage     `json:"usage,omitzero"`
	CompletedAt time.Time `json:"completed_at"`
}

// Success reports whether there is an output.
func (r *Result[Out]) Success() bool { return r.Error == "" }

// Err returns the error of the worker, a *mailbox.Failure, or nil if there is an
// output.
func (r *Result[Out]) Err() error {
	if r.Success() {
		return nil
	}
	return &mailbox.Failure{Kind: r.ErrorKind, Text: r.Error}
}

// fail records an error in the result.
func (r *Result[Out]) fail(cause error) {
	failure := mailbox.NewFailure(cause)
	var none Out
	r.Output, r.Error, r.ErrorKind = none, failure.Text, failure.Kind
	r.CompletedAt = time.Now().UTC()
}
