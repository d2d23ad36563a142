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

// A trouble is why DynamoDB did not do what it was asked.
type trouble int

const (
	// broken: the request cannot be sent, or is wrong; repeating it is pointless.
	broken trouble = iota
	// conditionFailed: it was understood, and the slot is not as it must be.
	conditionFailed
	// busy: it was turned away, and surely not done.
	busy
	// unanswered: nobody knows whether it was done.
	unanswered
	noTable
	tooLarge
	forbidden
	unauthenticated
)

// troubles are the error codes of DynamoDB that say more than that it failed.
var troubles = map[string]trouble{
	"ConditionalCheckFailedException": conditionFailed,

	"ProvisionedThroughputExceededException": busy,
	"RequestLimitExceeded":                   busy,
	"ThrottlingException":                    busy,
	"Throttling":                             busy,
	"ReplicatedWriteConflictException":       busy,

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

// troubleOf tells what went wrong.
func troubleOf(err error) trouble {
	if refusal, ok := errors.AsType[smithy.APIError](err); ok {
		if t, known := troubles[refusal.ErrorCode()]; known {
			return t
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
		return unanswered // the attempt's own time was over
	}
	return broken
}

func isValidation(refusal smithy.APIError) bool { return refusal.ErrorCode() == "ValidationException" }

// failure is the error of a request that cannot be done.
func (s *Store) failure(r request, t trouble, cause error) error {
	e := &driver.Error{Code: driver.ErrUnavailable, Op: r.op, Queue: s.table, Err: cause}
	if r.id != "" {
		e.Queue = driver.SlotAddress(r.id)
	}
	switch t {
	case busy:
		e.Detail = fmt.Sprintf("DynamoDB turned the request away %d times: table %s has too little capacity for what is asked of it", s.attempts, s.table)
		e.RetryAfter = time.Second
	case noTable:
		e.Detail = fmt.Sprintf("there is no table %s in this account and region: create it, or open the store with CreateTable", s.table)
		if r.op == opOpen {
			// Later it must not be taken for a slot that is not there: a worker
			// would ack a request that nobody has answered.
			e.Code = driver.ErrNotFound
		}
	case tooLarge:
		e.Code, e.Field, e.Detail = driver.ErrTooLarge, "Body", fmt.Sprintf("an answer has at most %d bytes in DynamoDB", MaxAnswerBytes)
	case forbidden:
		e.Code, e.Detail = driver.ErrForbidden, "table "+s.table
	case unauthenticated:
		e.Code, e.Detail = driver.ErrUnauthenticated, "table "+s.table
	default:
		if refusal, ok := errors.AsType[smithy.APIError](cause); ok && isValidation(refusal) {
			e.Code, e.Detail = driver.ErrInvalid, fmt.Sprintf("DynamoDB does not understand the request; table %s must have the one key %q, a string", s.table, attributeID)
		}
	}
	return e
}
