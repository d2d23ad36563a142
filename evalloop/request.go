package evalloop

import (
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/mainloop"
)

// A Request asks an EvalLoop to run one sample in one experiment.
type Request[In, Expected any] struct {
	ID         string               `json:"request_id"`
	Sample     Sample[In, Expected] `json:"sample"`
	Experiment mainloop.Experiment  `json:"experiment"`
	CreatedAt  time.Time            `json:"created_at"`
}

// newRequest returns a request with a new id, created now.
func newRequest[In, Expected any](sample Sample[In, Expected], experiment mainloop.Experiment) Request[In, Expected] {
	id := mainloop.NewRequest(struct{}{})
	return Request[In, Expected]{ID: id.ID, Sample: sample, Experiment: experiment, CreatedAt: id.CreatedAt}
}

// RequestID returns the id, for dead letters and replies.
func (r Request[In, Expected]) RequestID() string { return r.ID }

// A Result is the result of one request.
type Result struct {
	RequestID string `json:"request_id"`
	SampleID  string `json:"sample_id"`
	// Experiment is the name of the experiment.
	Experiment string `json:"experiment_name"`
	Score      Score  `json:"score"`
	// LatencyMS is how long the agent took, in milliseconds.
	LatencyMS float64 `json:"latency_ms"`
	// Error is why there is no score, and ErrorKind the kind of the error.
	Error       string              `json:"error,omitempty"`
	ErrorKind   mailbox.FailureKind `json:"error_kind,omitempty"`
	SessionID   string              `json:"session_id,omitempty"`
	Usage       mainloop.Usage      `json:"usage,omitzero"`
	CompletedAt time.Time           `json:"completed_at"`
}

// Success reports whether the sample was scored, well or badly.
func (r *Result) Success() bool { return r.Error == "" }

// fail records an error in the result.
func (r *Result) fail(cause error) {
	failure := mailbox.NewFailure(cause)
	r.Score, r.Error, r.ErrorKind = Score{}, failure.Text, failure.Kind
	r.CompletedAt = time.Now().UTC()
}
