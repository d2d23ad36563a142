package mainloop

import (
	"time"

	"github.com/mailboxmq/mailbox"
)

// A Result is the reply to a Request: an output or an error.
type Result[Out any] struct {
	// RequestID is that of the request.
	RequestID string `json:"request_id"`
	// Output is what the agent has answered; the zero Out if there is an error.
	Output Out `json:"output,omitzero"`
	// Error is why there is no output, and ErrorKind tells kinds of errors apart.
	Error     string              `json:"error,omitempty"`
	ErrorKind mailbox.FailureKind `json:"error_kind,omitempty"`
	// SessionID is that of the session in which the request was worked on; empty
	// if it did not come to that.
	SessionID string `json:"session_id,omitempty"`
	// Run is the attempt that this is the result of.
	Run RunContext `json:"run_context,omitzero"`
	// Usage is what the attempt has used.
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

// fail makes the result one of an error.
func (r *Result[Out]) fail(cause error) {
	failure := mailbox.NewFailure(cause)
	var none Out
	r.Output, r.Error, r.ErrorKind = none, failure.Text, failure.Kind
	r.CompletedAt = time.Now().UTC()
}
