package mainloop

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Codes of this package, beside those of package mailbox.
const (
	// ErrBudget: the request has used more than its budget. Trying again cannot
	// help.
	ErrBudget mailbox.Code = "budget exceeded"
	// ErrDeadline: the request's deadline has passed. Trying again cannot help.
	ErrDeadline mailbox.Code = "deadline passed"
	// ErrTurns: the model asked for tools again and again, and never answered.
	ErrTurns mailbox.Code = "too many turns"

	// ErrRateLimited: the model server was asked too often. Trying later helps.
	ErrRateLimited mailbox.Code = "model server limits the rate"
	// ErrModelUnavailable: the model server did not answer, or made no sense.
	// Trying later may help.
	ErrModelUnavailable mailbox.Code = "model server unavailable"
	// ErrPolicy: the model server refuses the content. Trying again cannot help.
	ErrPolicy mailbox.Code = "refused by content policy"
	// ErrRejected: the model server finds the request wrong, as when the prompt
	// is too long or the model does not exist. Trying again cannot help.
	ErrRejected mailbox.Code = "rejected by model server"
	// ErrCredentials: the model server does not know us, or does not let us.
	ErrCredentials mailbox.Code = "credentials refused by model server"
	// ErrQuota: what was paid for is used up.
	ErrQuota mailbox.Code = "quota of model server used up"
)

// An AdapterError is what an Adapter returns when a model could not be asked, or
// did not answer. Its code decides whether the request is tried again.
type AdapterError struct {
	// Code is one of the codes about model servers.
	Code mailbox.Code
	// Status is the HTTP status, if there was one.
	Status int
	// Detail is what the server said.
	Detail string
	// RetryAfter is when the server wants to be asked again; 0 if it did not say.
	RetryAfter time.Duration
	// Err is the error below.
	Err error
}

// Error returns the code, the status and what the server said.
func (e *AdapterError) Error() string {
	text := string(e.Code)
	if e.Status != 0 {
		text += fmt.Sprintf(" (%d %s)", e.Status, http.StatusText(e.Status))
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the code, and the error below if there is one.
func (e *AdapterError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// Final reports whether err, of an agent, says that trying again cannot help: the
// budget is used up, the deadline has passed, or a model server has refused.
func Final(err error) bool {
	failed, ok := errors.AsType[*AdapterError](err)
	return errors.Is(err, ErrBudget) || errors.Is(err, ErrDeadline) || ok && !failed.Retryable()
}

// Retryable reports whether the same request may succeed later.
func (e *AdapterError) Retryable() bool {
	return e.Code == ErrRateLimited || e.Code == ErrModelUnavailable
}
