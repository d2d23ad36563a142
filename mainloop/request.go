package mainloop

import (
	"time"
)

// A Request is the message type of a MainLoop. Make one with NewRequest, and set the
// fields that override the loop's defaults.
type Request[Req any] struct {
	// ID identifies the request in its result. It is the same in all attempts.
	ID   string `json:"request_id"`
	Body Req    `json:"request"`
	// Budget and Deadline bound the work. Zero means those of the loop.
	Budget    Budget    `json:"budget,omitzero"`
	Deadline  Deadline  `json:"deadline,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	// Experiment is the variant of the agent to run. Nil means the default.
	Experiment *Experiment `json:"experiment,omitempty"`
}

// NewRequest returns a request with a new id, created now.
func NewRequest[Req any](body Req) Request[Req] {
	return Request[Req]{ID: newID(), Body: body, CreatedAt: time.Now().UTC()}
}

// RequestID returns the id, for dead letters.
func (r Request[Req]) RequestID() string { return r.ID }
