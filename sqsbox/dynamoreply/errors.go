package dynamoreply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/mailboxmq/mailbox/driver"
)

// A failureKind is why a request to DynamoDB failed.
type failureKind int

const (
	// failed: the request cannot be sent, or is invalid; repeating it is pointless.
	failed failureKind = iota
	// conditionFailed: the slot does not meet the condition of the request.
	conditionFailed
	// throttled: DynamoDB refused the request for now, and did not carry it out.
	throttled
	// unanswered: DynamoDB may or may not have carried out the request.
	unanswered
	noTable
	tooLarge
	forbidden
	unauthenticated
)

// kindByCode maps the error codes of DynamoDB; other codes mean failed.
var kindByCode = map[string]failureKind{
	"ConditionalCheckFailedException": conditionFailed,

	"ProvisionedThroughputExceededException": throttled,
	"RequestLimitExceeded":                   throttled,
	"ThrottlingException":                    throttled,
	"Throttling":                             throttled,
	"ReplicatedWriteConflictException":       throttled,

	"InternalServerError": unanswered,
	"InternalFailure":     unanswered,
	"ServiceUnavailable":  unanswered,

	"ResourceNotFoundException": noTable,

	"AccessDeniedException":    forbidden,
	"KMSAccessDeniedException": forbidden,
	"OptInRequired":            forbidden,

	"ExpiredTokenException":               unauthenticated,
	"IncompleteSignatureException":        unauthenticated,
	"InvalidSignatureException":           unauthenticated,
	"MissingAuthenticationTokenException": unauthenticated,
	"UnrecognizedClientException":         unauthenticated,
}

// classify returns why a request failed.
func classify(err error) failureKind {
	if refusal, ok := errors.AsType[smithy.APIError](err); ok {
		if kind, known := kindByCode[refusal.ErrorCode()]; known {
			return kind
		}
		if text := refusal.ErrorMessage(); isValidation(refusal) && strings.HasPrefix(text, "Item size") && strings.Contains(text, "exceeded") {
			return tooLarge
		}
		if refusal.ErrorFault() == smithy.FaultServer {
			return unanswered
		}
	}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response.HTTPStatusCode() >= 500 {
		return unanswered
	}
	if _, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return unanswered
	}
	if _, ok := errors.AsType[*smithy.DeserializationError](err); ok {
		return unanswered
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return unanswered // the timeout of this attempt passed
	}
	return failed
}

func isValidation(refusal smithy.APIError) bool { return refusal.ErrorCode() == "ValidationException" }

// newError returns the error of a request that failed for good.
func (s *store) newError(r request, kind failureKind, cause error) error {
	e := &driver.Error{Code: driver.ErrUnavailable, Op: r.op, Queue: s.table, Err: cause}
	if r.id != "" {
		e.Queue = driver.SlotAddress(r.id)
	}
	switch kind {
	case throttled:
		e.Detail = fmt.Sprintf("DynamoDB throttled the request %d times: table %s has too little capacity for this load", s.attempts, s.table)
		e.RetryAfter = time.Second
	case noTable:
		e.Detail = fmt.Sprintf("there is no table %s in this account and region: create it, or open the store with CreateTable", s.table)
		if r.op == opOpen {
			// Only Open says so: a later ErrNotFound would mean that the slot is
			// gone, and a worker would ack a request that it has not answered.
			e.Code = driver.ErrNotFound
		}
	case tooLarge:
		e.Code, e.Field, e.Detail = driver.ErrTooLarge, "Body", fmt.Sprintf("an answer has at most %d bytes in DynamoDB", maxAnswerBytes)
	case forbidden:
		e.Code, e.Detail = driver.ErrForbidden, "table "+s.table
	case unauthenticated:
		e.Code, e.Detail = driver.ErrUnauthenticated, "table "+s.table
	default:
		if refusal, ok := errors.AsType[smithy.APIError](cause); ok && isValidation(refusal) {
			e.Code, e.Detail = driver.ErrInvalid, fmt.Sprintf("DynamoDB rejected the request as invalid; table %s must have the single key %q, a string", s.table, attributeID)
		}
	}
	return e
}
