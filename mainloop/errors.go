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
	// ErrBudget: the request has exceeded its budget. Final.
	ErrBudget mailbox.Code = "budget exceeded"
	// ErrDeadline: the request's deadline has passed. Final.
	ErrDeadline mailbox.Code = "deadline passed"
	// ErrTurns: the model called tools in every turn and did not answer.
	ErrTurns mailbox.Code = "too many turns"

	// ErrRateLimited: the model server limits the rate. Retry later.
	ErrRateLimited mailbox.Code = "model server limits the rate"
	// ErrModelUnavailable: the model server did not answer, or its answer was invalid.
	// A retry may help.
	ErrModelUnavailable mailbox.Code = "model server unavailable"
	// ErrPolicy: the model server refuses the content. Final.
	ErrPolicy mailbox.Code = "refused by content policy"
	// ErrRejected: the model server rejects the request, for example because the prompt
	// is too long or the model does not exist. Final.
	ErrRejected mailbox.Code = "rejected by model server"
	// ErrCredentials: the model server rejects the credentials.
	ErrCredentials mailbox.Code = "credentials refused by model server"
	// ErrQuota: the account's quota is used up.
	ErrQuota mailbox.Code = "quota of model server used up"
)

// An AdapterError is the error of an Adapter whose model could not be called or did not
// answer. Its code decides whether the request is retried.
type AdapterError struct {
	// Code is one of the codes about model servers.
	Code mailbox.Code
	// Status is the HTTP status, if there was one.
	Status int
	// Detail is the server's message.
	Detail string
	// RetryAfter is the delay that the server asks for; 0 if it gave none.
	RetryAfter time.Duration
	// Err is the underlying error.
	Err error
}

// Error returns the code, the status and the server's message.
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

// Unwrap returns the code and the underlying error.
func (e *AdapterError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// Final reports whether a retry cannot help after this error of an agent: the budget is
// used up, the deadline has passed, or a model server has refused.
func Final(err error) bool {
	failed, ok := errors.AsType[*AdapterError](err)
	return errors.Is(err, ErrBudget) || errors.Is(err, ErrDeadline) || ok && failed.Code != ErrRateLimited && failed.Code != ErrModelUnavailable
}
